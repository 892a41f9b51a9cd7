//! Payload options: contents, regular expressions and operations on numbers.

use super::content::Content;
use super::number::{Comparison, parse_number};
use super::operand::{Operand, VariableNames, operand};
use regex::bytes::{Regex, RegexBuilder};

/// Reading of a number from the payload.
#[derive(Clone, Copy, Debug)]
pub(in crate::ids) struct Field {
    pub(in crate::ids) len: Operand,
    pub(in crate::ids) offset: Operand,
    pub(in crate::ids) relative: bool,
    pub(in crate::ids) little: bool,
    /// Base of a number written as text.
    pub(in crate::ids) text_base: Option<u32>,
    pub(in crate::ids) bitmask: u64,
}

/// Operator of byte_test.
#[derive(Clone, Copy, Debug)]
pub(in crate::ids) enum TestOperator {
    Less,
    Greater,
    Equal,
    AtMost,
    AtLeast,
    And,
    Xor,
}

impl TestOperator {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "<" => TestOperator::Less,
            ">" => TestOperator::Greater,
            "=" | "==" => TestOperator::Equal,
            "<=" => TestOperator::AtMost,
            ">=" => TestOperator::AtLeast,
            "&" => TestOperator::And,
            "^" => TestOperator::Xor,
            other => return Err(format!("{other}: not an operator")),
        })
    }

    pub(in crate::ids) fn holds(self, read: u64, value: u64) -> bool {
        match self {
            TestOperator::Less => read < value,
            TestOperator::Greater => read > value,
            TestOperator::Equal => read == value,
            TestOperator::AtMost => read <= value,
            TestOperator::AtLeast => read >= value,
            TestOperator::And => read & value != 0,
            TestOperator::Xor => read ^ value != 0,
        }
    }
}

/// Operator of byte_math.
#[derive(Clone, Copy, Debug)]
pub(in crate::ids) enum MathOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    ShiftLeft,
    ShiftRight,
}

/// Origin of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum JumpFrom {
    Field,
    Beginning,
    End,
}

/// A payload option.
#[derive(Clone, Debug)]
pub(in crate::ids) enum Match {
    Content(Content),
    IsDataAt {
        at: Operand,
        relative: bool,
        negated: bool,
    },
    BufferSize(Comparison),
    Pcre {
        regex: Regex,
        relative: bool,
        negated: bool,
    },
    ByteTest {
        field: Field,
        operator: TestOperator,
        negated: bool,
        value: Operand,
    },
    ByteJump {
        field: Field,
        multiplier: i64,
        align: bool,
        from: JumpFrom,
        post_offset: Operand,
    },
    ByteExtract {
        field: Field,
        multiplier: u64,
        align: u64,
        variable: usize,
    },
    ByteMath {
        field: Field,
        operator: MathOperator,
        value: Operand,
        variable: usize,
    },
    /// The options of base64_data are about the decoded bytes.
    Base64Decode {
        bytes: usize,
        offset: usize,
        relative: bool,
        options: Vec<Match>,
    },
}

impl Match {
    /// Returns true if the option depends on the end of the previous match.
    pub(in crate::ids) fn is_relative(&self) -> bool {
        match self {
            Match::Content(content) => content.is_relative(),
            Match::IsDataAt { relative, .. } | Match::Pcre { relative, .. } | Match::Base64Decode { relative, .. } => {
                *relative
            }
            Match::BufferSize(_) => false,
            Match::ByteTest { field, .. }
            | Match::ByteJump { field, .. }
            | Match::ByteExtract { field, .. }
            | Match::ByteMath { field, .. } => field.relative,
        }
    }

    /// Returns true if options behind this one are relative to its end.
    pub(in crate::ids) fn moves(&self) -> bool {
        self.finds() || matches!(self, Match::ByteJump { .. } | Match::ByteExtract { .. } | Match::ByteMath { .. })
    }

    /// Returns true if the option finds bytes at any position.
    pub(in crate::ids) fn finds(&self) -> bool {
        match self {
            Match::Content(content) => !content.negated,
            Match::Pcre { negated, .. } => !negated,
            _ => false,
        }
    }

    /// Returns true if the option depends on the beginning or the end of the payload.
    pub(in crate::ids) fn is_absolute(&self) -> bool {
        match self {
            Match::Content(content) => self.is_positioned() || content.endswith,
            Match::IsDataAt { .. } | Match::BufferSize(_) => true,
            Match::Pcre { regex, relative, .. } => {
                let text = regex.as_str().replace("[^", "");
                !relative && ["^", "$", "\\A", "\\z"].iter().any(|anchor| text.contains(anchor))
            }
            Match::ByteJump { field, from, .. } => !field.relative || *from != JumpFrom::Field,
            Match::ByteTest { field, .. } | Match::ByteExtract { field, .. } | Match::ByteMath { field, .. } => {
                !field.relative
            }
            Match::Base64Decode { relative, .. } => !relative,
        }
    }

    /// Returns true if the option is at a fixed position of the payload.
    pub(in crate::ids) fn is_positioned(&self) -> bool {
        matches!(self, Match::Content(c) if c.offset.is_some() || c.depth.is_some() || c.startswith)
    }
}

struct Words<'a> {
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn new(value: &'a str) -> Self {
        Words { words: value.split(',').map(str::trim).collect() }
    }

    fn next(&mut self, name: &str) -> Result<&'a str, String> {
        if self.words.is_empty() { Err(format!("{name} is missing")) } else { Ok(self.words.remove(0)) }
    }

    /// Removes `name` and returns true if it is there.
    fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| !word.eq_ignore_ascii_case(name));
        self.words.len() != before
    }

    /// Removes `name VALUE` and returns the value.
    fn named(&mut self, name: &str) -> Option<&'a str> {
        let value =
            |word: &&'a str| word.strip_prefix(name).filter(|rest| rest.starts_with([' ', '\t'])).map(str::trim);
        let at = self.words.iter().position(|word| value(word).is_some())?;
        value(&self.words.remove(at))
    }

    fn finish(self) -> Result<(), String> {
        self.words.first().map_or(Ok(()), |word| Err(format!("{word}: not supported here")))
    }
}

fn number(text: Option<&str>, default: u64) -> Result<u64, String> {
    text.map_or(Ok(default), |text| parse_number(text).ok_or_else(|| format!("{text}: not a number")))
}

fn field(words: &mut Words<'_>, len: Operand, offset: Operand) -> Result<Field, String> {
    if words.flag("dce") {
        return Err("dce: the byte order of DCE/RPC is not supported".into());
    }
    let relative = words.flag("relative");
    let endian = words.named("endian");
    let little = words.flag("little") || endian == Some("little");
    words.flag("big");
    let string_base = words.named("string");
    let text = words.flag("string") || string_base.is_some();
    let (hex, dec, oct) = (words.flag("hex"), words.flag("dec"), words.flag("oct"));
    let base = match (string_base, hex, oct) {
        (Some("hex"), ..) | (None, true, _) => 16,
        (Some("oct"), ..) | (None, _, true) => 8,
        (Some("dec") | None, ..) => 10,
        (Some(other), ..) => return Err(format!("{other}: not a base of numbers")),
    };
    let text_base = (text || hex || dec || oct).then_some(base);
    let bitmask = match words.named("bitmask") {
        None => u64::MAX,
        Some(text) => {
            let digits = text.trim_start_matches("0x").trim_start_matches("0X");
            u64::from_str_radix(digits, 16).ok().filter(|n| *n > 0).ok_or_else(|| format!("{text}: not a bit mask"))?
        }
    };
    let max = if text_base.is_some() { 23 } else { 8 };
    if let Operand::Number(n) = len
        && !(0..=max).contains(&n)
    {
        return Err(format!("{n}: not a number of bytes from 0 to {max}"));
    }
    Ok(Field { len, offset, relative, little, text_base, bitmask })
}

pub(super) fn parse_byte_test(value: &str, names: &VariableNames) -> Result<Match, String> {
    let mut words = Words::new(value);
    let len = operand(words.next("the number of bytes")?, names)?;
    let operator = words.next("the operator")?;
    let (negated, operator) = operator.strip_prefix('!').map_or((false, operator), |rest| (true, rest.trim()));
    let operator = if operator.is_empty() { TestOperator::Equal } else { TestOperator::parse(operator)? };
    let compared = operand(words.next("the value")?, names)?;
    let offset = operand(words.next("the offset")?, names)?;
    let field = field(&mut words, len, offset)?;
    words.finish()?;
    Ok(Match::ByteTest { field, operator, negated, value: compared })
}

pub(super) fn parse_byte_jump(value: &str, names: &VariableNames) -> Result<Match, String> {
    let mut words = Words::new(value);
    let len = operand(words.next("the number of bytes")?, names)?;
    let offset = operand(words.next("the offset")?, names)?;
    let multiplier = number(words.named("multiplier"), 1)?;
    let multiplier =
        i64::try_from(multiplier).ok().filter(|n| (1..65536).contains(n)).ok_or("multiplier is out of range")?;
    let post_offset = words.named("post_offset").map_or(Ok(Operand::Number(0)), |text| operand(text, names))?;
    let align = words.flag("align");
    let from = match (words.flag("from_beginning"), words.flag("from_end")) {
        (true, true) => return Err("from_beginning contradicts from_end".into()),
        (true, false) => JumpFrom::Beginning,
        (false, true) => JumpFrom::End,
        (false, false) => JumpFrom::Field,
    };
    let field = field(&mut words, len, offset)?;
    words.finish()?;
    Ok(Match::ByteJump { field, multiplier, align, from, post_offset })
}

fn new_variable(name: &str, names: &mut VariableNames) -> Result<usize, String> {
    if name.is_empty() || name.parse::<i64>().is_ok() {
        return Err(format!("{name}: not a name of a variable"));
    }
    let next = names.len();
    Ok(*names.entry(name.to_owned()).or_insert(next))
}

pub(super) fn parse_byte_extract(value: &str, names: &mut VariableNames) -> Result<Match, String> {
    let mut words = Words::new(value);
    let len = operand(words.next("the number of bytes")?, names)?;
    let offset = operand(words.next("the offset")?, names)?;
    let name = words.next("the variable")?;
    let multiplier = number(words.named("multiplier"), 1)?;
    let align = number(words.named("align"), 1)?;
    if !matches!(align, 1 | 2 | 4) {
        return Err(format!("align {align}: write 2 or 4"));
    }
    let field = field(&mut words, len, offset)?;
    words.finish()?;
    Ok(Match::ByteExtract { field, multiplier, align, variable: new_variable(name, names)? })
}

pub(super) fn parse_byte_math(value: &str, names: &mut VariableNames) -> Result<Match, String> {
    let mut words = Words::new(value);
    let mut required = |name: &str| words.named(name).ok_or_else(|| format!("{name} is missing"));
    let len = operand(required("bytes")?, names)?;
    let offset = operand(required("offset")?, names)?;
    let operator = match required("oper")? {
        "+" => MathOperator::Add,
        "-" => MathOperator::Subtract,
        "*" => MathOperator::Multiply,
        "/" => MathOperator::Divide,
        "<<" => MathOperator::ShiftLeft,
        ">>" => MathOperator::ShiftRight,
        other => return Err(format!("{other}: not an operator")),
    };
    let compared = operand(required("rvalue")?, names)?;
    if matches!(operator, MathOperator::Divide) && compared == Operand::Number(0) {
        return Err("rvalue 0: a division by zero".into());
    }
    let name = required("result")?;
    let field = field(&mut words, len, offset)?;
    words.finish()?;
    Ok(Match::ByteMath { field, operator, value: compared, variable: new_variable(name, names)? })
}

pub(super) fn parse_is_data_at(value: &str, names: &VariableNames) -> Result<Match, String> {
    let mut words = Words::new(value);
    let at = words.next("the position")?;
    let (negated, at) = at.strip_prefix('!').map_or((false, at), |rest| (true, rest));
    let at = operand(at, names)?;
    let relative = words.flag("relative");
    words.flag("rawbytes");
    words.finish()?;
    Ok(Match::IsDataAt { at, relative, negated })
}

/// Largest number of bytes that base64_decode reads.
const MAX_BASE64: usize = 64 << 10;

pub(super) fn parse_base64_decode(value: &str) -> Result<Match, String> {
    let mut words = Words { words: value.split(',').map(str::trim).filter(|word| !word.is_empty()).collect() };
    let mut value = |name, default: usize| {
        let number = number(words.named(name), default as u64)?;
        usize::try_from(number)
            .ok()
            .filter(|n| *n <= MAX_BASE64)
            .ok_or_else(|| format!("{name} {number}: too many bytes"))
    };
    let (bytes, offset) = (value("bytes", MAX_BASE64)?, value("offset", 0)?);
    let relative = words.flag("relative");
    words.finish()?;
    Ok(Match::Base64Decode { bytes, offset, relative, options: vec![] })
}

/// Largest size of a compiled regular expression in bytes.
const REGEX_SIZE: usize = 1 << 20;

/// Compiles an expression up to the largest size.
pub(super) fn build_regex(builder: &mut RegexBuilder) -> Result<Regex, String> {
    builder.size_limit(REGEX_SIZE).dfa_size_limit(REGEX_SIZE).build().map_err(|e| {
        let text = e.to_string();
        let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("the regular expression is not supported: {last}")
    })
}

/// Parses `"/EXPRESSION/FLAGS"` without the quotation marks.
pub(super) fn parse_pcre(text: &str, negated: bool) -> Result<Match, String> {
    let text = without_captures(text);
    let body = text.strip_prefix('/').ok_or("the expression does not begin with /")?;
    let (expression, flags) = body.rsplit_once('/').ok_or("the expression does not end with /")?;
    let mut relative = false;
    let mut anchored = false;
    let mut builder_flags = (false, false, false, false, false, false);
    for flag in flags.chars() {
        match flag {
            'i' => builder_flags.0 = true,
            's' => builder_flags.1 = true,
            'm' => builder_flags.2 = true,
            'x' => builder_flags.3 = true,
            'G' => builder_flags.4 = true,
            'E' => builder_flags.5 = true,
            'A' => anchored = true,
            'R' => relative = true,
            'B' | 'O' => {}
            _ => return Err(format!("{flag}: this flag of pcre is not supported")),
        }
    }
    let expression = expression.replace("\\;", ";").replace("\\\"", "\"").replace("\\:", ":");
    let end = if !builder_flags.5 && !builder_flags.2 { dollar_before_newline(&expression) } else { expression };
    let pattern = if anchored { format!("\\A(?:{end})") } else { end };
    let mut builder = RegexBuilder::new(&pattern);
    builder
        .unicode(false)
        .case_insensitive(builder_flags.0)
        .dot_matches_new_line(builder_flags.1)
        .multi_line(builder_flags.2)
        .ignore_whitespace(builder_flags.3)
        .swap_greed(builder_flags.4);
    let regex = build_regex(&mut builder)?;
    Ok(Match::Pcre { regex, relative, negated })
}

/// Removes the names under which Suricata logs the groups of an expression.
pub(super) fn without_captures(mut text: &str) -> &str {
    while let Some((rest, name)) = text.rsplit_once(',')
        && ["pkt:", "alert:", "flow:"].iter().any(|scope| name.trim_start().starts_with(scope))
    {
        text = rest.trim_end();
    }
    text
}

/// Lets a final `$` match before a newline at the end too.
fn dollar_before_newline(expression: &str) -> String {
    match expression.strip_suffix('$') {
        Some(rest) if !rest.ends_with('\\') => format!("{rest}(?:\\n?\\z)"),
        _ => expression.to_owned(),
    }
}
