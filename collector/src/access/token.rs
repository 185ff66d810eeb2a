//! A token: 256 random bits as text, of which only the SHA-256 is kept. Owns how one is made, told apart from other text, and compared.
//!
//! A slow hash would protect passwords that people choose. Nobody finds 256 random bits by trying, however fast a try is.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// What every token begins with, so that people and scanners for secrets recognise one.
const PREFIX: &str = "tailwater_";
/// Random bytes of one.
const BYTES: usize = 32;

/// A token as it is handed out. Never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The system gives no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("this machine gives no random bytes")]
pub struct NoRandomness;

/// So many random bytes.
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

impl Token {
    /// A new one.
    pub fn generate() -> Result<Self, NoRandomness> {
        Ok(Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<BYTES>()?))))
    }

    /// What somebody shows as one; nothing if it has not the form of one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let body = text.strip_prefix(PREFIX)?;
        let bytes = URL_SAFE_NO_PAD.decode(body).ok()?;
        (bytes.len() == BYTES).then(|| Self(text.to_owned()))
    }

    /// To hand it out.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(self.0.as_bytes())
    }
}

/// SHA-256 of a secret, in files as 64 hexadecimal digits.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    /// Of these bytes.
    #[must_use]
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// As they are.
    #[must_use]
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Whether they are the same, found out in the same time whatever they hold.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl PartialEq for Hash {
    fn eq(&self, other: &Self) -> bool {
        self.same(other)
    }
}

impl Eq for Hash {}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Nothing is found out about a secret by its hash; in logs it is noise all the same.
impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(…)")
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || "a hash has 64 hexadecimal digits".to_owned();
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (n, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * n..2 * n + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_have_256_bits_and_are_told_from_other_text() {
        let (a, b) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert_ne!(a.expose(), b.expose());
        assert_eq!(Token::parse(a.expose()).unwrap(), a);
        let body = a.expose().strip_prefix(PREFIX).unwrap();
        for other in ["", PREFIX, body, &a.expose()[..a.expose().len() - 1], &format!("{}x", a.expose())] {
            assert!(Token::parse(other).is_none(), "{other}");
        }
        assert!(!format!("{a:?} {:?}", a.hash()).contains(&body[..4]));
    }

    #[test]
    fn a_hash_reads_back_as_itself_and_is_of_one_secret_only() {
        let hash = Hash::of(b"abc");
        // FIPS 180-2, appendix B.1.
        assert_eq!(hash.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(Hash::try_from(hash.to_string()).unwrap().same(&hash));
        assert!(!Hash::of(b"abd").same(&hash));
        for wrong in ["", "ba78", &"g".repeat(64), &"é".repeat(32)] {
            assert!(Hash::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
