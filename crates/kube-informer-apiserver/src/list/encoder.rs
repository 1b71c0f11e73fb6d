//! Writes a list piece by piece, as JSON or protobuf.

use std::sync::Arc;

use kube_wire::json::ListMeta;
use kube_wire::protobuf::{begin_list, end_list, write_item};
use serde_json::json;

use super::Page;
use crate::core::Call;
use crate::negotiate::Coding;
use crate::object::{Form, Stored};

/// A list on its way out.
pub(super) struct Encoder {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<Stored>>,
    form: Form,
    /// Whether items show their kind, as those of custom kinds do.
    typed: bool,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    First,
    Later,
    Done,
}

impl Encoder {
    /// A protobuf list has its length in front: its items should have been converted before.
    pub(super) fn new(call: &Call, form: Form, page: Page) -> Self {
        let meta = list_meta(call, &form, &page);
        let custom = call.kind.custom.is_some();
        let head = match form.coding() {
            Coding::Json => json_head(&meta, custom && !form.is_metadata()),
            Coding::Protobuf => {
                let mut head = Vec::new();
                begin_list(&mut head, &meta, page.items.iter().map(|item| item.bare(&form).len()));
                head
            }
        };
        Self { head: Some(head), items: page.items.into_iter(), form, typed: custom, state: State::First }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The next piece, of about this size; `None` after the last one.
    pub(super) fn next(&mut self, size: usize) -> Option<Vec<u8>> {
        if self.is_done() {
            return None;
        }
        let mut out = self.head.take().unwrap_or_default();
        while out.len() < size {
            let Some(item) = self.items.next() else {
                match self.form.coding() {
                    Coding::Json => out.extend_from_slice(b"]}\n"),
                    Coding::Protobuf => end_list(&mut out),
                }
                self.state = State::Done;
                break;
            };
            match self.form.coding() {
                Coding::Json => {
                    if self.state == State::Later {
                        out.push(b',');
                    }
                    item.write(&self.form, self.typed, &mut out);
                }
                Coding::Protobuf => write_item(&mut out, item.bare(&self.form)),
            }
            self.state = State::Later;
        }
        Some(out)
    }
}

fn list_meta(call: &Call, form: &Form, page: &Page) -> ListMeta {
    let (kind, api_version) = if form.is_metadata() {
        ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned())
    } else {
        (call.kind.list_kind.as_str(), call.kind.api_version(&call.info.version))
    };
    ListMeta {
        kind: Some(kind.to_owned()),
        api_version: Some(api_version),
        resource_version: Some(page.revision.into()),
        continue_token: page.token.as_ref().map(|token| token.encode()),
        remaining_item_count: page.remaining.map(|count| count as u64),
    }
}

/// `always_continues`: lists of custom kinds have the token even if it is empty.
fn json_head(meta: &ListMeta, always_continues: bool) -> Vec<u8> {
    let version = meta.resource_version.as_ref().map(ToString::to_string);
    let mut metadata = json!({ "resourceVersion": version });
    match &meta.continue_token {
        Some(token) => metadata["continue"] = json!(token),
        None if always_continues => metadata["continue"] = json!(""),
        None => {}
    }
    if let Some(remaining) = meta.remaining_item_count {
        metadata["remainingItemCount"] = json!(remaining);
    }
    let (kind, api_version) = (json!(meta.kind), json!(meta.api_version));
    format!("{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{metadata},\"items\":[").into_bytes()
}
