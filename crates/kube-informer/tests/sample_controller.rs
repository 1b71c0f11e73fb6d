//! The example of a controller for a custom resource, played to its end.

#[allow(dead_code, unreachable_pub, reason = "the example's main is not a test")]
#[path = "../examples/sample_controller.rs"]
mod example;

#[tokio::test(start_paused = true)]
async fn a_custom_resource_and_its_controller_live_in_one_program() {
    example::play().await.unwrap();
}
