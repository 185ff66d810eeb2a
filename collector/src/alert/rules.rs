//! The rules between keys of alerting's configuration. A rule that is broken names its table and key, so that whoever holds the file's
//! text can name the line.

use super::config::{Hook, HookKind, Silence, names};
use super::silence;
use crate::fault::Fault;
use tailwater_model::incident::Severity;

impl Hook {
    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        use HookKind::{Command, Pagerduty, Slack, Webhook};
        let kind = self.kind.name();
        let http = self.kind != Command;
        let not_for =
            |key, wanted: &str| Some((key, format!("is for {wanted}, this is {kind}"), "leave it out"));
        if http && self.url.is_some() && self.url_file.is_some() {
            return Some(("url_file", "url is given as well".into(), "give one of them"));
        }
        if http && self.kind != Pagerduty && self.url.is_none() && self.url_file.is_none() {
            return Some(("", format!("{kind} needs url"), "add url = \"https://host/path\""));
        }
        if !http {
            if self.argv.first().is_none_or(String::is_empty) {
                return Some((
                    "argv",
                    "command needs a program".into(),
                    "add argv = [\"/path/to/program\", \"argument\"]",
                ));
            }
            for (key, given) in [
                ("url", self.url.is_some()),
                ("url_file", self.url_file.is_some()),
                ("authorization_file", self.authorization_file.is_some()),
                ("ca", self.ca.is_some()),
            ] {
                if given {
                    return not_for(key, "receivers over HTTP");
                }
            }
        } else if !self.argv.is_empty() {
            return not_for("argv", "command");
        }
        if !self.secret_files.is_empty() && self.kind != Webhook {
            return not_for("secret_files", "webhook");
        }
        if self.kind == Pagerduty && self.routing_key_file.is_none() {
            return Some((
                "",
                "pagerduty needs routing_key_file".into(),
                "put the integration key in a file and name it",
            ));
        }
        if self.kind != Pagerduty && (self.routing_key_file.is_some() || self.acknowledge) {
            return not_for(if self.acknowledge { "acknowledge" } else { "routing_key_file" }, "pagerduty");
        }
        if let Some(url) = &self.url
            && let Err(why) = crate::send::http::address(url)
        {
            return Some(("url", why, "give it as http://host:port/path or https://host/path"));
        }
        if self.ca.is_some() && self.url.as_deref().is_some_and(|url| url.starts_with("http://")) {
            return Some(("ca", "nothing is encrypted over http://".into(), "leave it out, or use https://"));
        }
        for (key, value, most) in [("timeout_s", self.timeout_s, 300), ("resend_s", self.resend_s, 3600)] {
            if value == 0 || value > most {
                return Some((
                    key,
                    format!("{value} is not between 1 and {most}"),
                    "leave it out for the default",
                ));
            }
        }
        if self.burst == 0 {
            return Some(("burst", "0 lets nothing through".into(), "give at least 1"));
        }
        if self.kind == Slack && self.min_severity == Severity::Info && self.rate() == 0 {
            return Some((
                "rate_per_minute",
                "every queue that is felt, without a limit".into(),
                "give a limit, or a higher min_severity",
            ));
        }
        None
    }
}

/// Reads a silence; an error has the key, what is wrong with it and what to do. `hooks`: the names that there are.
pub(super) fn silence(
    asked: &Silence,
    hooks: &[String],
) -> Result<silence::Silence, (&'static str, String, String)> {
    if let Some(unknown) = asked.hooks.iter().find(|hook| !hooks.contains(hook)) {
        let all = if hooks.is_empty() { "none".to_owned() } else { hooks.join(", ") };
        return Err(("hooks", format!("no hook is called \"{unknown}\""), format!("the hooks are: {all}")));
    }
    silence::Silence::new(asked).map_err(|(key, what)| {
        let such = "such as from = \"2026-11-21T22:00:00Z\", daily = \"22:00-04:30\", days = [\"sat\"]";
        (key, what, such.to_owned())
    })
}

/// The first rule that is broken.
pub fn check(hooks: &[Hook], silences: &[Silence]) -> Result<(), Fault> {
    let names = names(hooks);
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    for (index, (hook, name)) in hooks.iter().zip(&names).enumerate() {
        let at = |key, what, remedy: &str| {
            Err(Fault { table: "hook", index, key, what, remedy: remedy.to_owned() })
        };
        if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
            return at(
                "name",
                format!("\"{name}\" is not a name"),
                "use up to 64 letters, digits, - _ and .",
            );
        }
        if names[..index].contains(name) {
            return at(
                "name",
                format!("another hook is called \"{name}\""),
                "give each hook a name of its own",
            );
        }
        if let Some((key, what, remedy)) = hook.fault() {
            return at(key, what, remedy);
        }
    }
    for (index, asked) in silences.iter().enumerate() {
        if let Err((key, what, remedy)) = silence(asked, &names) {
            return Err(Fault { table: "silence", index, key, what, remedy });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    fn hooks(text: &str) -> Result<(), Fault> {
        #[derive(Deserialize)]
        struct File {
            #[serde(default)]
            hook: Vec<Hook>,
            #[serde(default)]
            silence: Vec<Silence>,
        }
        let file: File = toml::from_str(text).unwrap();
        check(&file.hook, &file.silence)
    }

    #[test]
    fn what_does_not_fit_together_is_named_by_table_and_key() {
        let cases = [
            ("[[hook]]\nkind = \"webhook\"\n", ""),
            ("[[hook]]\nkind = \"webhook\"\nurl = \"ftp://x/\"\n", "url"),
            ("[[hook]]\nkind = \"webhook\"\nurl = \"http:///x\"\n", "url"),
            ("[[hook]]\nkind = \"slack\"\nurl = \"http://h/\"\nurl_file = \"f\"\n", "url_file"),
            ("[[hook]]\nkind = \"slack\"\nurl = \"http://h/\"\nsecret_files = [\"f\"]\n", "secret_files"),
            ("[[hook]]\nkind = \"webhook\"\nurl = \"http://h/\"\nca = \"f\"\n", "ca"),
            ("[[hook]]\nkind = \"pagerduty\"\n", ""),
            ("[[hook]]\nkind = \"command\"\n", "argv"),
            ("[[hook]]\nkind = \"command\"\nargv = [\"true\"]\nurl = \"http://h/\"\n", "url"),
            ("[[hook]]\nkind = \"webhook\"\nurl = \"http://h/\"\nargv = [\"true\"]\n", "argv"),
            ("[[hook]]\nkind = \"webhook\"\nurl = \"http://h/\"\nacknowledge = true\n", "acknowledge"),
            ("[[hook]]\nkind = \"webhook\"\nurl = \"http://h/\"\ntimeout_s = 0\n", "timeout_s"),
            ("[[hook]]\nkind = \"webhook\"\nurl = \"http://h/\"\nname = \"a b\"\n", "name"),
            ("[[silence]]\ncomment = \"c\"\nhooks = [\"x\"]\n", "hooks"),
            ("[[silence]]\ncomment = \"c\"\nfrom = \"tomorrow\"\n", "from"),
            ("[[silence]]\ncomment = \"c\"\ndaily = \"9-17\"\n", "daily"),
            ("[[silence]]\ncomment = \"c\"\ndays = [\"someday\"]\n", "days"),
        ];
        for (text, key) in cases {
            let fault = hooks(text).unwrap_err();
            assert_eq!(fault.key, key, "{text}: {fault:?}");
            assert!(!fault.what.is_empty() && !fault.remedy.is_empty());
        }
        let two = "[[hook]]\nkind = \"webhook\"\nurl = \"http://h/\"\nname = \"a\"\n";
        assert_eq!(hooks(&two.repeat(2)).unwrap_err().index, 1);
    }

    #[test]
    fn hooks_without_a_name_are_told_apart() {
        let a = Hook::webhook("http://h/");
        let named = Hook { name: Some("pager".into()), ..a.clone() };
        assert_eq!(names(&[a.clone(), named, a]), ["webhook", "pager", "webhook-3"]);
    }
}
