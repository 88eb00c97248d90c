//! Connections to providers: dialled with their timings kept, pooled, lent to one exchange at a time as a [`Lease`].

pub mod connector;
pub mod pool;

pub use self::{
    connector::{ConnectTimings, Connector, Dial, Dialled, Dialling, Sender, TcpDial},
    pool::{Lease, Pool},
};
