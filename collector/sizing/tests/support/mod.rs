//! What golden tests share: numbers that look random and are the same in every run, and comparisons.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::missing_panics_doc,
    reason = "test support, used in part by each test file"
)]

use tailwater_sizing::concurrency::Law;

/// SplitMix64, as numbers between 0 and 1, exponentials and normal deviates.
pub struct Noise(pub u64);

impl Noise {
    /// Above 0, at the most 1.
    pub fn even(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed ^ (mixed >> 31)) >> 11) as f64 + 1.0) / 9_007_199_254_740_992.0
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.even().ln()
    }

    /// Box and Muller.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.even().ln()).sqrt() * (std::f64::consts::TAU * self.even()).cos()
    }
}

/// Asserts that a number is what it should be, within a part of that.
#[track_caller]
pub fn near(what: &str, seen: f64, expect: f64, part: f64) {
    let off = seen / expect - 1.0;
    println!("{what}: {seen:.5} for {expect} ({:+.3} %)", off * 100.0);
    assert!(off.abs() <= part, "{what}: {seen} is not {expect} within {} %", part * 100.0);
}

/// Table I of B, Tomcat (1/1/1).
pub fn tomcat() -> Law {
    Law::printed(2.84e-2, 9.87e-3, 4.54e-5, 11.03).expect("it is a law")
}

/// Table I of B, MySQL (1/2/1).
pub fn mysql() -> Law {
    Law::printed(7.19e-3, 5.04e-3, 1.65e-6, 4.45).expect("it is a law")
}
