//! Backups, as users hold them.

use crate::storage::BackupData;

/// A copy of everything a server stored at one revision: see [`ApiServer::backup`](crate::ApiServer::backup).
#[derive(Debug, Clone)]
pub struct Backup {
    data: BackupData,
}

impl Backup {
    pub(crate) fn new(data: BackupData) -> Self {
        Self { data }
    }

    pub(crate) fn data(&self) -> &BackupData {
        &self.data
    }

    /// The revision it was taken at.
    pub fn revision(&self) -> u64 {
        self.data.revision
    }
}
