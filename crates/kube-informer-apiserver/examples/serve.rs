//! The server on a socket, until it is stopped; prints a kubeconfig:
//! `cargo run -p kube-informer-apiserver --example serve -- 8001 > kubeconfig`

use kube_informer_apiserver::ApiServer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(0), |port| port.parse())?;
    let serving = ApiServer::new().serve(([127, 0, 0, 1], port)).await?;
    eprintln!("listening on {}", serving.url());
    print!("{}", serving.kubeconfig());
    std::future::pending().await
}
