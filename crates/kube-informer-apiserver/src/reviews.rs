//! Reviews: questions that are answered and not stored. Everybody may do everything here.

use http::StatusCode;
use serde_json::{Value, json};

use crate::core::Call;
use crate::negotiate::{self, Shape};
use crate::object::Object;
use crate::read;
use crate::status::Answer;
use crate::write;

/// Who every client is.
const USER: &str = "system:admin";

/// Whether the kind is a question.
pub(crate) fn is_review(call: &Call) -> bool {
    call.kind.custom.is_none()
        && matches!(call.kind.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

pub(crate) fn answer(call: &Call) -> Answer {
    let coding = negotiate::form(call, Shape::One)?.coding();
    // Nothing is stored in any case, but an option that means nothing is refused here too.
    write::dry_run(call)?;
    let mut review: Object = write::body_object(call)?;
    let user = json!({ "username": USER, "groups": ["system:masters", "system:authenticated"] });
    let status = match call.kind.resource.as_str() {
        "selfsubjectreviews" => json!({ "userInfo": user }),
        "tokenreviews" => json!({ "authenticated": true, "user": user }),
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
            "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            "incomplete": false,
        }),
        _ => json!({ "allowed": true }),
    };
    review.insert("kind".to_owned(), call.kind.kind.as_str().into());
    review.insert("apiVersion".to_owned(), call.kind.api_version(&call.info.version).into());
    review.insert("status".to_owned(), status);
    let review = Value::Object(review);
    Ok(match call.kind.wire {
        Some(kind) => read::value(StatusCode::CREATED, kind, &review, coding),
        None => read::json(StatusCode::CREATED, review.to_string()),
    })
}
