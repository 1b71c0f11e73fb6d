//! Indented JSON, for people: those who ask with `?pretty=true`, and those who come with curl, wget or a browser.

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::body::{self, Body};
use crate::request::RequestInfo;

/// Whether a person is asking.
pub(crate) fn is_wanted(info: &RequestInfo, headers: &HeaderMap) -> bool {
    if info.param("pretty").is_some() {
        return info.flag("pretty");
    }
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}

/// Indents an answer that is ready; streams stay as they are.
pub(crate) async fn indent(response: Response<Body>) -> Response<Body> {
    let json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !json || response.body().size_hint().exact().is_none() {
        return response;
    }
    let (parts, body) = response.into_parts();
    // A body whose size is known is in memory.
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Response::from_parts(parts, body::full(indented(&bytes)))
}

/// JSON with two spaces for each level, members in their order.
fn indented(json: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    let line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * depth, b' ');
    };
    for (i, &byte) in json.iter().enumerate() {
        if in_text {
            out.push(byte);
            in_text = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                if !matches!(json.get(i + 1), Some(b'}' | b']')) {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                if !matches!(i.checked_sub(1).map(|before| json[before]), Some(b'{' | b'[')) {
                    depth = depth.saturating_sub(1);
                    line(&mut out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            b'\n' => {}
            _ => {
                in_text = byte == b'"';
                out.push(byte);
            }
        }
    }
    out.push(b'\n');
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_empty_parts_stay_in_one_piece() {
        let json = br#"{"a":"x,y:\"{[\\","b":{},"c":[1,[]],"d":{"e":null}}"#;
        let expected = "{\n  \"a\": \"x,y:\\\"{[\\\\\",\n  \"b\": {},\n  \"c\": [\n    1,\n    []\n  ],\n  \"d\": {\n    \"e\": null\n  }\n}\n";
        assert_eq!(std::str::from_utf8(&indented(json)).unwrap(), expected);
    }
}
