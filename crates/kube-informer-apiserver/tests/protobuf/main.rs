//! The server speaks protobuf: the same objects, the same answers, another wire.

mod accept;
#[path = "../common/mod.rs"]
mod common;
mod kinds;
mod reads;
mod watches;
mod wire;
mod writes;
