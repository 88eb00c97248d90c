use super::rules::Rules;

pub(super) static RULES: Rules = super::other::unread();
