//! Every kind of fault, as a client sees it: one test for each, named after it.

mod before;
mod cluster;
mod events;
mod lifecycle;
mod protobuf;
mod seeds;
mod socket;
mod streams;
