//! A client whose requests a test sees first.

use std::sync::Arc;

use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use kube_informer_apiserver::ApiServer;
use tower::Service;

type Answer = http::Response<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, std::io::Error>>;

/// A client whose requests go to the server that `choose` names, or are answered by it.
pub fn client(
    choose: impl Fn(&mut http::Request<Body>) -> Result<ApiServer, Box<http::Response<Body>>>
    + Send
    + Sync
    + 'static,
) -> Client {
    let choose = Arc::new(choose);
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let choose = Arc::clone(&choose);
        async move {
            let answer: Answer = match choose(&mut request) {
                Ok(server) => {
                    let answer = server.connect().call(request).await?;
                    answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
                }
                Err(answer) => answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync()),
            };
            Ok::<_, std::io::Error>(answer)
        }
    });
    Client::new(service, "default")
}
