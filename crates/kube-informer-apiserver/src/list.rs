//! Lists: consistent, in key order, in pages if asked; encoded while they are read, so that a large one takes no memory.

mod encoder;

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};

use self::encoder::Encoder;
use crate::body;
use crate::core::{Call, Core};
use crate::negotiate::{self, Coding, Shape};
use crate::object::{Form, Stored};
use crate::options::{Continue, ListOptions, Version};
use crate::read;
use crate::selection::Selection;
use crate::status::{Answer, Status};
use crate::storage::{NotHeld, Objects};

/// Lists larger than this are compressed if the client takes it, and sent in more than one frame.
const GZIP_FROM: usize = 128 * 1024;
/// How many objects are converted before others have their turn.
const CONVERTED_AT_ONCE: usize = 64;
/// About how large a frame of a long list is.
const FRAME: usize = 64 * 1024;

pub(crate) async fn list(core: &Core, call: &Call) -> Answer {
    let form = negotiate::form(call, Shape::List)?;
    let page = page(core, call).await?;
    Ok(respond(call, form, page).await)
}

/// The objects that a request asks for, or the first of them.
pub(crate) async fn page(core: &Core, call: &Call) -> Answer<Page> {
    let selection = Selection::of(&call.kind, &call.info)?;
    let options = ListOptions::of(&call.info)?;
    let (objects, revision) = objects(core, call, &options).await?;
    let after = options.token.as_ref().map(|token| token.start.as_str());
    Ok(Page::cut(&objects, revision, &selection, after, options.limit))
}

/// The objects a list is answered from, and their revision.
async fn objects(core: &Core, call: &Call, options: &ListOptions) -> Answer<(Objects, u64)> {
    let exact = |revision: u64| {
        let found = core.store().objects_at(&call.kind, revision);
        found.map(|objects| (objects, revision))
    };
    let newest = || {
        let store = core.store();
        (store.objects(&call.kind), store.revision())
    };
    let lagging = || match call.at_most {
        // A replica that lags behind what was compacted has caught up in the meantime.
        Some(revision) => exact(revision).unwrap_or_else(|_| newest()),
        None => newest(),
    };
    if let Some(token) = &options.token {
        let Ok(revision) = u64::try_from(token.rv) else { return Ok(newest()) };
        return exact(revision).map_err(|error| match error {
            NotHeld::Compacted { .. } => {
                let mut status = Status::expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                );
                status.continue_token = Some(token.inconsistent().encode());
                status
            }
            NotHeld::Future { current } => Status::too_large_version(revision, current),
        });
    }
    match options.version {
        Version::Latest => Ok(newest()),
        Version::Any => Ok(lagging()),
        Version::AtLeast(revision) => {
            read::wait_for(core, revision, call.at_most).await?;
            Ok(lagging())
        }
        Version::Exact(revision) => {
            read::wait_for(core, revision, None).await?;
            exact(revision).map_err(|error| match error {
                NotHeld::Compacted { .. } => {
                    Status::expired("The resourceVersion for the provided list is too old.")
                }
                NotHeld::Future { current } => Status::too_large_version(revision, current),
            })
        }
    }
}

/// What one answer holds.
pub(crate) struct Page {
    pub(crate) items: Vec<Arc<Stored>>,
    revision: u64,
    token: Option<Continue>,
    remaining: Option<usize>,
}

impl Page {
    fn cut(
        objects: &Objects,
        revision: u64,
        selection: &Selection,
        after: Option<&str>,
        limit: Option<usize>,
    ) -> Self {
        let mut rest = select(objects, selection, after);
        let Some(limit) = limit else {
            return Self { items: rest.collect(), revision, token: None, remaining: None };
        };
        let items: Vec<_> = rest.by_ref().take(limit).collect();
        let remaining = rest.count();
        let token = items.last().filter(|_| remaining > 0).map(|last| Continue::new(revision, &last.key));
        // With a selector the real server does not know how many are left.
        let remaining = Some(remaining).filter(|&count| count > 0 && !selection.has_selectors());
        Self { items, revision, token, remaining }
    }
}

/// The objects that a selection is about, in key order.
pub(crate) fn select<'a>(
    objects: &'a Objects,
    selection: &'a Selection,
    after: Option<&str>,
) -> impl Iterator<Item = Arc<Stored>> + 'a {
    let (start, end) = selection.range(after);
    // A token may point behind the scope's end; such a range is empty, and the map would panic on it.
    let empty = match (&start, &end) {
        (
            std::ops::Bound::Excluded(start) | std::ops::Bound::Included(start),
            std::ops::Bound::Excluded(end),
        ) => start >= end,
        _ => false,
    };
    let range = (!empty).then(|| {
        let borrow =
            |bound: &std::ops::Bound<String>| bound.as_ref().map(|key| Arc::<str>::from(key.as_str()));
        objects.range((borrow(&start), borrow(&end)))
    });
    range.into_iter().flatten().map(|(_, stored)| stored).filter(|stored| selection.matches(stored)).cloned()
}

pub(crate) async fn respond(call: &Call, form: Form, page: Page) -> Response<body::Body> {
    let coding = form.coding();
    if coding == Coding::Protobuf {
        convert(&page.items, &form).await;
    }
    let mut encoder = Encoder::new(call, form, page);
    let start = encoder.next(GZIP_FROM + 1).unwrap_or_default();
    if encoder.is_done() && start.len() <= GZIP_FROM {
        return read::encoded(StatusCode::OK, coding, start);
    }
    let mut gzip =
        negotiate::accepts_gzip(&call.headers).then(|| GzEncoder::new(Vec::new(), Compression::fast()));
    let compressed = gzip.is_some();
    let mut first = Some(start);
    let frames = stream::iter(std::iter::from_fn(move || {
        loop {
            let Some(frame) = first.take().or_else(|| encoder.next(FRAME)) else {
                let rest = gzip.take()?.finish().expect("compressing in memory");
                return Some(Bytes::from(rest));
            };
            let Some(gzip) = &mut gzip else { return Some(Bytes::from(frame)) };
            gzip.write_all(&frame).expect("compressing in memory");
            let ready = std::mem::take(gzip.get_mut());
            if !ready.is_empty() {
                return Some(Bytes::from(ready));
            }
        }
    }));
    let mut response = Response::new(body::stream(frames));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, coding.content_type());
    if compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Makes the protobuf form of objects that no one has asked for in it. A list begins with its length, so all of it must
/// be known first; others are let through in between.
///
/// *Cancel safety*: what was made is kept with the objects.
async fn convert(items: &[Arc<Stored>], form: &Form) {
    for some in items.chunks(CONVERTED_AT_ONCE) {
        for item in some {
            item.bare(form);
        }
        tokio::task::yield_now().await;
    }
}
