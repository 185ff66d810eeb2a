//! Orders that hurt a service, as lines of standard input, and the times at which they did as lines of standard output. Standard input that
//! ends ends the service: whoever started it is gone.

use crate::lab::Span;
use anyhow::{Context, Result, bail};
use std::io::BufRead;

/// What to do to oneself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Hold the lock that requests read under.
    Lock {
        /// For how long.
        ms: u64,
    },
    /// Sleep on the thread of the event loop.
    Block {
        /// For how long.
        ms: u64,
    },
    /// Take so much of the usual CPU for each request.
    Heavier {
        /// Of a hundred.
        percent: u32,
        /// For how long.
        ms: u64,
    },
    /// Take all connections of the pool for a call, and use none.
    Exhaust {
        /// Index of the call.
        call: usize,
        /// For how long.
        ms: u64,
    },
}

/// # Errors
/// A line that is no order.
pub(super) fn order(line: &str) -> Result<Order> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Ok(match words[..] {
        ["lock", ms] => Order::Lock { ms: ms.parse()? },
        ["block", ms] => Order::Block { ms: ms.parse()? },
        ["heavier", percent, ms] => Order::Heavier { percent: percent.parse()?, ms: ms.parse()? },
        ["exhaust", call, ms] => Order::Exhaust { call: call.parse()?, ms: ms.parse()? },
        _ => bail!("{line:?} is no order: lock MS, block MS, heavier PERCENT MS or exhaust CALL MS"),
    })
}

/// Says that the service listens.
pub(super) fn ready() {
    println!("ready");
}

/// Has each order carried out, one after the other, and ends the process when there are no more.
pub(super) fn obey(carry_out: impl Fn(Order) -> Result<Span>) -> ! {
    let all = || -> Result<()> {
        for line in std::io::stdin().lock().lines() {
            let line = line.context("read orders")?;
            let span = carry_out(order(&line)?).with_context(|| line.clone())?;
            println!("{}", serde_json::to_string(&span)?);
        }
        Ok(())
    };
    let failed = all().err();
    if let Some(error) = &failed {
        eprintln!("graphnode: {error:#}");
    }
    std::process::exit(i32::from(failed.is_some()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_and_what_is_none_is_refused() {
        assert_eq!(order("lock 700").unwrap(), Order::Lock { ms: 700 });
        assert_eq!(order("block 5\n").unwrap(), Order::Block { ms: 5 });
        assert_eq!(order("heavier 250 1500").unwrap(), Order::Heavier { percent: 250, ms: 1500 });
        assert_eq!(order("exhaust 1 900").unwrap(), Order::Exhaust { call: 1, ms: 900 });
        for none in ["", "lock", "lock x", "heavier 5", "exhaust 900", "stop 1"] {
            assert!(order(none).is_err(), "{none:?}");
        }
    }
}
