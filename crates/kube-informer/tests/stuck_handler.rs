//! The example of the handler that never returns, with fewer events.

#[allow(dead_code, reason = "the example's main is not a test")]
#[path = "../examples/stuck_handler.rs"]
mod example;

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_returns_holds_up_nobody_and_memory_is_bounded_by_the_keys() {
    let (depth, merged) = example::run(100_000, 1_000).await;
    assert_eq!(depth, 1024 + 1_000);
    assert_eq!(merged, 100_000 - 1 - 1024 - 1_000);
}
