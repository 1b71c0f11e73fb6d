//! A copy of everything that must survive, as `etcdctl snapshot save` makes one: objects and revision, no history.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::{Objects, Table};
use crate::kinds::Kind;

/// What is in a backup. Cheap: the objects are shared with the store.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: BTreeMap<Arc<str>, Objects>,
    pub(crate) custom: BTreeMap<(String, String), Arc<Kind>>,
}

impl Snapshot {
    pub(crate) fn take(
        revision: u64,
        tables: &BTreeMap<Arc<str>, Table>,
        custom: &BTreeMap<(String, String), Arc<Kind>>,
    ) -> Self {
        let objects = tables.iter().map(|(id, table)| (id.clone(), table.objects.clone())).collect();
        Self { revision, objects, custom: custom.clone() }
    }
}
