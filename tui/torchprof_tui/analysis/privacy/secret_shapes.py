"""Recognize secrets by the name of a key, by the forms of well-known tokens, and in text such as command lines.

The forms are those of detect-secrets (Apache 2.0) and of the services' documents. Its scanner is not used: it reads
lines of source code, takes 2.8 s for 1 MB without line breaks, and has no rule for `*_TOKEN`, `*_AUTH`, options of
command lines, or environments. Every search here takes time that is linear in the text.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Any

from torchprof_tui.trace.core.late_regex import compile_later


class SecretName(IntEnum):
    """How surely the value behind a name is a secret."""

    NONE = 0
    LIKELY = 1
    CERTAIN = 2


_CERTAIN_NAME = compile_later(
    r"passw(or)?ds?|passwd|passphrase|passcode|secret(?!ar)|credential|connection_?str|private_?keys?$"
    r"|(^|_)(creds?|pwds?|pw|keytab|authorization|cookies?|jwt|id_rsa|bearer|dsn|fernet|api_?keys?)(_|$)"
    r"|(^|_)(access|auth|api|hf|github|gitlab|session|refresh|bot|personal|id)_?tokens?(_id|_value)?$"
    r"|(^|_)(api|app|application|access|priv|account|acct|signing|ssh|ssl|tls|gpg|pgp|encryption|decryption|master|service"
    r"|client|licen[cs]e|db|database|storage|auth|admin|root|deploy|server|consumer|subscription|hmac|aes|rsa|jwt|session"
    r"|webhook|write|ingest|ingestion|instrumentation|shared)_?keys?(_id|_ids)?$"
)
_LIKELY_NAME = compile_later(
    r"(^|_)(auth|auths|pass|pat|sas|netrc|kubeconfig|webhook(_url)?|docker_auth_config|token|[a-z0-9]+_tokens?(_value)?)$"
)
"""Names in lower case with `_` between words."""

_TOKENIZER_NAME = compile_later(
    r"(^|_)(pad|padding|eos|bos|unk|sep|cls|mask|special|additional|stop|end|start|begin|image|img|video|audio|speech|vision"
    r"|max|min|num|total|new|prompt|generated|generate|input|output|prefill|decode|decoded|cached|draft|speculative"
    r"|accepted|batched|scheduled|computed|first|last|next|prev|per|of|think|thinking|tool|call|word|text|sub|user|assistant"
    r"|system|fim|newline|space|blank|sample|sampled|valid|all|ignore|ignored|forced|suppress|suppressed|context|seq"
    r"|sequence|chunk|expert|routed|local|global|n)_tokens?(_value)?$"
    r"|(^|_)(forward|backward|fwd|bwd|first|second|third|last|single|multi|num|per|each|warmup|warm_up|opt|optimizer|compile"
    r"|compiler|fusion|graph|grad|train|training|eval|inference|render|one|two|max|min|by|band|high|low|all)_pass$"
)
"""Legitimate names of traces: tokens of a tokenizer and of a serving engine, passes of a computation."""

_MIN_LENGTHS = {SecretName.LIKELY: 6, SecretName.CERTAIN: 3}
_MIN_SECRET_NUMBER = 1000
_NO_SECRET = compile_later(
    r"[*x.•]+|[<\[({]{0,2}(re[mdt][a-z]{3,6}ed|hidden|masked|none|null|unset|empty|unknown|n/?a)[>\])}]{0,2}"
    r"|true|false|yes|no|on|off|required|optional|enabled|disabled|default|basic|bearer|digest|forward|backward|auto"
    r"|\$\{?\w*\}?.?|<.{0,60}>|\[[A-Z_]{1,20}\]",
    re.IGNORECASE,
)
"""Values that say that a secret was removed before, that there is none, or where it comes from."""

_LONG_FORMS = (
    ("hf_", r"\bhf_[A-Za-z0-9]{20}"),
    ("api_org_", r"\bapi_org_[A-Za-z0-9]{20}"),
    ("gh", r"\bgh[pousr]_[A-Za-z0-9_]{30}"),
    ("github_pat_", r"github_pat_[A-Za-z0-9_]{30}"),
    ("gl", r"\bgl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas|ffct)-[A-Za-z0-9_-]{20}"),
    ("GR1348941", r"GR1348941[A-Za-z0-9_-]{20}"),
    ("k-", r"\b[sp]k-[A-Za-z0-9_-]{20}"),
    ("k_live_", r"\b[rsp]k_live_[0-9A-Za-z]{16}"),
    ("k_test_", r"\b[rsp]k_test_[0-9A-Za-z]{16}"),
    ("A", r"\b(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}"),
    ("/api/webhooks/", r"discord(?:app)?\.com/api/webhooks/\d{5,30}/[A-Za-z0-9_-]{20}"),
    ("AIza", r"AIza[A-Za-z0-9_-]{35}"),
    ("ya29.", r"\bya29\.[A-Za-z0-9_-]{20}"),
    ("GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20}"),
    ("npm_", r"\bnpm_[A-Za-z0-9]{30}"),
    ("pypi-", r"pypi-A[A-Za-z0-9_-]{40}"),
    ("dapi", r"\bdapi[a-f0-9]{32}"),
    ("dckr_pat_", r"dckr_pat_[A-Za-z0-9_-]{20}"),
    ("hv", r"\bhv[sb]\.[A-Za-z0-9_-]{20}"),
    ("nvapi-", r"nvapi-[A-Za-z0-9_-]{20}"),
    ("r8_", r"\br8_[A-Za-z0-9]{30}"),
    ("gsk_", r"\bgsk_[A-Za-z0-9]{30}"),
    ("wandb_v1_", r"wandb_v1_[A-Za-z0-9_-]{20}"),
    ("lin_api_", r"lin_api_[A-Za-z0-9]{30}"),
    ("ntn_", r"\bntn_[A-Za-z0-9]{40}"),
    ("glsa_", r"glsa_[A-Za-z0-9]{32}"),
    ("PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    ("shp", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{30}"),
    ("_v1_", r"\bdo[opr]_v1_[a-f0-9]{60}"),
    ("sntrys_", r"sntrys_[A-Za-z0-9+/=_]{40}"),
    ("sq0", r"\bsq0(?:csp|atp|idp)-[0-9A-Za-z_-]{22}"),
    ("-us", r"\b[0-9a-f]{32}-us[0-9]{1,2}\b"),
    ("AKC", r"\bAKC[a-zA-Z0-9]{50}"),
    ("aio_", r"\baio_[a-zA-Z0-9]{28}"),
    (".", r"\b[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}"),
    ("AC", r"\bAC[a-f0-9]{32}\b"),
    ("SK", r"\bSK[a-f0-9]{32}\b"),
    ("AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{50}"),
)
"""Forms of secrets with 16 letters, digits, - and _ side by side: a text that each contains, and an expression.

The repetitions of all expressions are bounded."""

_OTHER_FORMS = (
    ("xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10}"),
    ("xapp-", r"\bxapp-[A-Za-z0-9-]{10}"),
    ("hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_/]{10}"),
    ("webhook.office.com", r"webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{30}"),
    ("eyJ", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,4000}={0,2}\.eyJ[A-Za-z0-9_-]{8}"),
    ("SG.", r"\bSG\.[A-Za-z0-9_-]{16,30}\.[A-Za-z0-9_-]{16}"),
    (".atlasv1.", r"[a-zA-Z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60}"),
    (":AA", r"\b\d{8,10}:AA[0-9A-Za-z_-]{33}"),
    ("PRIVATE KEY", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY"),
    ("PuTTY-User-Key-File", r"PuTTY-User-Key-File-\d"),
    ("://", r"://[^/\s:@]{0,100}:[^/\s@]{2,200}@|://[0-9a-f]{32}@"),
    ("Key=", r"(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/=]{30}"),
    ("ig=", r"[?&]sig=[A-Za-z0-9%+/=]{20}"),
    ("-Signature=", r"X-(?:Amz|Goog)-Signature=[A-Za-z0-9%+/=]{20}"),
    ("earer ", r"\b[Bb]earer\s{1,3}[A-Za-z0-9._~+/-]{16}"),
    ("asic ", r"\b[Bb]asic\s{1,3}(?=[A-Za-z]{0,300}(?:[0-9]|[a-z][A-Z]))[A-Za-z0-9+/]{12}"),
    ("machine ", r"\bmachine\s{1,9}\S{1,100}\s{1,9}login\s{1,9}\S{1,100}\s{1,9}password\s"),
    ("sshpass", r"\bsshpass\s{1,9}-p"),
    ("$", r"\$(?:apr1|2[aby]|5|6)\$[A-Za-z0-9./$]{20}"),
    ("-u ", r"(?:^|\s)-u [^\s:]{1,100}:[^\s]{3}"),
    ("--user", r"(?:^|\s)--user[ =][^\s:]{1,100}:[^\s]{3}"),
)
"""The other forms."""

_LONG_RUN = compile_later(r"[A-Za-z0-9_-]{16}")
_COMPILED_LONG_FORMS = tuple((sign, compile_later(form)) for sign, form in _LONG_FORMS)
_COMPILED_OTHER_FORMS = tuple((sign, compile_later(form)) for sign, form in _OTHER_FORMS)

_MIN_FORM = 12  # characters of the shortest text with a secret of a known form

_KEYWORDS = ("pass", "pwd", "secret", "cred", "token", "key", "auth", "cookie", "jwt", "dsn", "fernet", "connection")
_KEYWORD = compile_later("|".join(_KEYWORDS))
_KEYWORD_OF_NAME = compile_later(
    f"{'|'.join(_KEYWORDS)}|bearer|pat|pw|keytab|sas|netrc|rsa|kubeconfig|webhook", re.IGNORECASE
)
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_MAX_NAME = 64
_ASSIGNED = compile_later(
    r"([\w.-]{0,64})[\\\"'\]]{0,4}(?:(\s{0,4}(?:=>|:=|=(?!=)|:)\s{0,4})|\s{1,4})[\\\"']{0,3}([^\s\"',;&|)}\]\\]{1,200})"
)
"""What follows a keyword in text: the rest of the name, `=` or `:` unless it is an option, and the value."""

_TYPE_NAME = compile_later(r"bytes|str|string|int|bool|float|any|object|optional\b.*", re.IGNORECASE)

MAX_VALUES = 10_000  # what holds more values behind the name of a secret counts as one: it is not searched to its end
MAX_KEYWORDS = 10_000  # a text that mentions keywords more often counts as a secret: it is not searched to its end


def split_words(name: str) -> str:
    """Return a name in lower case with `_` between words: "apiKey" and "API-Key" are "api_key"."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name[:200])
    return re.sub(r"[^a-z0-9]+", "_", words.lower())


@lru_cache(maxsize=4096)
def rate_name(name: str) -> SecretName:
    """Tell whether the value behind a name is a secret. Names of tokenizers and of passes are none."""
    if not _KEYWORD_OF_NAME.search(name):
        return SecretName.NONE
    words = re.sub(r"(?<=[a-z_])_?[0-9]{1,3}$", "", split_words(name).strip("_"))
    if _CERTAIN_NAME.search(words):
        return SecretName.CERTAIN
    is_variable = name.isupper() and words.endswith("_key")  # of environment variables, any key
    if (is_variable or _LIKELY_NAME.search(words)) and not _TOKENIZER_NAME.search(words):
        return SecretName.LIKELY
    return SecretName.NONE


def holds_secret(value: Any, name: SecretName) -> bool:
    """Tell whether a value behind a name may be a secret, or holds one in a list or an object."""
    left = [value]
    visited = 0
    while left:
        each = left.pop()
        visited += 1
        if visited > MAX_VALUES:
            return True
        if isinstance(each, str):
            text = each.strip()
            if len(text) >= _MIN_LENGTHS[name] and not _NO_SECRET.fullmatch(text):
                return True
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif name is SecretName.CERTAIN and type(each) is int and abs(each) >= _MIN_SECRET_NUMBER:
            return True
    return False


def has_known_form(text: str) -> bool:
    """Tell whether a text holds a token of a well-known service, a private key, or a URL with a password."""
    if len(text) < _MIN_FORM:
        return False
    for sign, form in _COMPILED_OTHER_FORMS:
        if sign in text and form.search(text):
            return True
    if not _LONG_RUN.search(text):
        return False
    return any(sign in text and form.search(text) for sign, form in _COMPILED_LONG_FORMS)


def has_secret(text: str) -> bool:
    """Tell whether a text holds a secret of a known form, or behind a name: `--password=…`, `"api_key": "…"`."""
    if has_known_form(text):
        return True
    if "=" not in text and ":" not in text and "-" not in text:
        return False
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters are longer in lower case
        lowered = text
    if not any(word in lowered for word in _KEYWORDS):
        return False
    begin = 0
    for count, keyword in enumerate(_KEYWORD.finditer(lowered)):
        if count > MAX_KEYWORDS:
            return True
        if keyword.start() < begin:
            continue
        assigned = _ASSIGNED.match(text, keyword.end())
        if assigned is None:
            continue
        before = text[max(keyword.start() - _MAX_NAME, 0) : keyword.start()]
        name = before[len(before.rstrip(_NAME_CHARACTERS)) :] + text[keyword.start() : assigned.end(1)]
        begin = assigned.end(1)
        if _is_assigned_secret(name, assigned[2], assigned[3]):
            return True
    return False


def _is_assigned_secret(name: str, separator: str | None, value: str) -> bool:
    rating = rate_name(name)
    if rating is SecretName.NONE or (separator is None and (not name.startswith("-") or value.startswith("-"))):
        return False
    # Prose (`the next token: …`) and source code (`REGISTRY_KEY = …`) have no digits there.
    is_assigned = separator in (None, "=")
    if not is_assigned and rating is SecretName.LIKELY and not any(map(str.isdigit, value)):
        return False
    # Source code and manuals: `key = make_key()`, `password=self.password`, `token: str`, `password=<yours>`.
    if "(" in value or value.startswith("<") or _TYPE_NAME.fullmatch(value) or name.endswith(value.rpartition(".")[2]):
        return False
    return holds_secret(value, rating)
