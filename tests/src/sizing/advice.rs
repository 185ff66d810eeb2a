//! What `GET /api/v1/advice` says of one listener's pool, as the laboratory reads it. Knows the shape of the answer, no collector and no lab.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How sure advice is, and so what it may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The curve was seen on both sides of its best point.
    Measured,
    /// It was seen saturated, and no penalty of more.
    Plateau,
    /// It never was: only a lower bound.
    Extrapolated,
}

/// A pool, as advised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// How sure.
    pub class: Class,
    /// The size to set.
    pub advised: u32,
    /// No smaller one is as good.
    pub at_least: u32,
    /// No larger one is as good; none: nothing is said of larger ones.
    pub at_most: Option<u32>,
    /// As many requests in flight were seen.
    pub seen_to: Option<f64>,
}

/// What was said, or that nothing was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Advice {
    /// A pool.
    Told(Pool),
    /// No pool, for this reason.
    Refused(String),
    /// The collector does not advise at all, or not of this listener.
    Absent(String),
}

impl Advice {
    /// The pool, if one was told.
    #[must_use]
    pub fn pool(&self) -> Option<&Pool> {
        match self {
            Advice::Told(pool) => Some(pool),
            _ => None,
        }
    }

    /// Of the listener at `port` of `host`, from an answer with this status.
    ///
    /// # Errors
    /// An answer that is none: another status, no JSON, a value of the wrong kind; names it.
    pub fn read(status: u16, body: &str, host: &str, port: u16) -> Result<Self> {
        if status == 404 {
            return Ok(Advice::Absent("this collector has no /api/v1/advice".to_owned()));
        }
        if status != 200 {
            bail!("GET /api/v1/advice: {status}: {}", body.lines().next().unwrap_or_default());
        }
        let answer: Value = serde_json::from_str(body).context("GET /api/v1/advice answers with JSON")?;
        let tiers = answer["tiers"].as_array().context("/api/v1/advice has a list `tiers`")?;
        let mine = tiers.iter().find(|tier| tier["host"] == host && tier["port"] == port);
        let Some(tier) = mine else {
            return Ok(Advice::Absent(format!("nothing was said of port {port} of {host}")));
        };
        let pool = &tier["pool"];
        if let Some(refused) = pool.get("refused") {
            return Ok(Advice::Refused(reason(refused, &pool["why"])));
        }
        pool_of(pool).map(Advice::Told).with_context(|| format!("the advice for {host}:{port}: {pool}"))
    }
}

fn reason(refused: &Value, why: &Value) -> String {
    let reason = refused.get("reason").unwrap_or(refused);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if why.is_null() { text(reason) } else { format!("{}: {}", text(reason), text(why)) }
}

fn pool_of(pool: &Value) -> Result<Pool> {
    let class = match pool["class"].as_str() {
        Some("measured") => Class::Measured,
        Some("plateau") => Class::Plateau,
        Some("extrapolated") => Class::Extrapolated,
        _ => bail!("`class` is none of measured, plateau, extrapolated"),
    };
    let value = &pool["value"];
    let count = |name: &str| -> Result<u32> {
        let number = value[name].as_f64().with_context(|| format!("`value.{name}` is a number"))?;
        if !(1.0..=1e6).contains(&number) {
            bail!("`value.{name}` is {number}, and no size of a pool");
        }
        Ok(number.round() as u32)
    };
    let at_most = if value["at_most"].is_null() { None } else { Some(count("at_most")?) };
    Ok(Pool {
        class,
        advised: count("advised")?,
        at_least: count("at_least")?,
        at_most,
        seen_to: value["seen_to"].as_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"tiers":[
        {"tier":"mariadb@db","host":"db-1","port":3306,"pool":{"refused":{"reason":"pool-capped"},"why":"all 50 were busy"}},
        {"tier":"tomcat10@app","host":"app-1","port":8080,
         "pool":{"class":"plateau","value":{"advised":26,"at_least":24,"at_most":null,"seen_to":61.0}}},
        {"tier":"odd","host":"odd","port":1,"pool":{"class":"certain","value":{"advised":1,"at_least":1}}},
        {"tier":"zero","host":"zero","port":1,"pool":{"class":"measured","value":{"advised":0,"at_least":1}}}]}"#;

    #[test]
    fn a_pool_a_refusal_and_silence_are_told_apart() {
        let pool =
            Pool { class: Class::Plateau, advised: 26, at_least: 24, at_most: None, seen_to: Some(61.0) };
        assert_eq!(Advice::read(200, ANSWER, "app-1", 8080).unwrap(), Advice::Told(pool));
        let refused = Advice::read(200, ANSWER, "db-1", 3306).unwrap();
        assert_eq!(refused, Advice::Refused("pool-capped: all 50 were busy".to_owned()));
        assert!(matches!(Advice::read(200, ANSWER, "db-1", 8080).unwrap(), Advice::Absent(_)));
        assert!(matches!(Advice::read(404, "not found", "db-1", 3306).unwrap(), Advice::Absent(_)));
    }

    #[test]
    fn an_answer_that_is_none_is_named_and_not_taken_for_silence() {
        let said = |status, body, host| format!("{:#}", Advice::read(status, body, host, 1).unwrap_err());
        assert!(said(500, "broken", "odd").contains("500: broken"));
        assert!(said(200, "<html>", "odd").contains("answers with JSON"));
        assert!(said(200, "{}", "odd").contains("`tiers`"));
        assert!(said(200, ANSWER, "odd").contains("`class` is none of"));
        assert!(said(200, ANSWER, "zero").contains("`value.advised` is 0"));
    }
}
