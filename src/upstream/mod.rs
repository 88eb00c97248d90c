//! Connections to providers: dialled with their timings kept, pooled, lent to one exchange at a time as a [`Lease`].

pub mod connector;
pub mod pool;
mod sender;

pub use self::{
    connector::{ConnectTimings, Connector, Dial, Dialled, Dialling, TcpDial},
    pool::{Lease, Pool},
    sender::{AnswerBody, Lost, Sender},
};
