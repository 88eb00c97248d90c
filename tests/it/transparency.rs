//! What leaves is what came: heads, bodies, moments and ends, byte by byte, HTTP/1.1 on both sides.

mod aborts;
mod bodies;
mod heads;
mod live;
mod moments;
mod random;
