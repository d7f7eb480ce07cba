//! COPY and MOVE: what `Destination`, `Depth` and `Overwrite` say (RFC 4918 sections 9.8 and 9.9), as nginx reads them.

use std::path::Path;

use weir_engine::settings::location::AliasedPart;
use weir_engine::{Exchange, Verdict};
use weir_http::{KnownField, Method, uri};
use weir_rt::file::FileKind;
use weir_rt::file::errno::{EEXIST, ENOENT};

use super::disk::{self, ArrivingFile, DavPath, NotFound};
use super::{DavSettings, DepthField, could_not_be_created, depth, failed, has_body, refuse, report};

/// Where a COPY or MOVE goes.
struct TransferGoal {
    /// The field as it came.
    field: Vec<u8>,
    place: DavPath,
}

pub(super) async fn transfer(settings: &DavSettings, x: &mut Exchange) -> Verdict {
    if has_body(x) {
        return refuse(x, 415, "COPY and MOVE with body are unsupported");
    }
    let goal = match goal(x) {
        Ok(goal) => goal,
        Err(verdict) => return verdict,
    };
    let overwrite = match overwrite(x) {
        Ok(overwrite) => overwrite,
        Err(verdict) => return verdict,
    };
    let source = match DavPath::of(x) {
        Ok(source) => source,
        Err(verdict) => return verdict,
    };
    if let Some(refused) = overlap(x, &source, &goal) {
        return refused;
    }
    let looked = {
        let path = goal.place.bare.clone();
        disk::away(x, move || disk::look(&path)).await
    };
    let there = match looked {
        Err(failure) if failure.errno == ENOENT => None,
        Err(failure) => return failed(x, &failure, NotFound(404)),
        Ok(found) if found.kind == FileKind::Dir && !goal.place.slash => {
            return not_to_collection(x, &goal, 409);
        }
        Ok(_) if !overwrite => {
            could_not_be_created(x, &goal.place.bare, EEXIST);
            return Verdict::Status(412);
        }
        Ok(found) => Some(found.kind == FileKind::Dir),
    };
    let looked = {
        let path = source.full.clone();
        disk::away(x, move || disk::look(&path)).await
    };
    match looked {
        Err(failure) => failed(x, &failure, NotFound(404)),
        Ok(found) if found.kind != FileKind::Dir => file(settings, x, source, goal).await,
        Ok(_) if !source.slash => {
            let uri = String::from_utf8_lossy(x.uri()).into_owned();
            refuse(x, 400, format_args!("\"{uri}\" is collection"))
        }
        Ok(_) => directory(x, source, goal, there).await,
    }
}

async fn file(settings: &DavSettings, x: &mut Exchange, source: DavPath, goal: TransferGoal) -> Verdict {
    let moves = x.request.head.method == Method::Move;
    let (from, to) = (source.full, goal.place.bare);
    let directories = settings.directory_access();
    let done = disk::away(x, move || match moves {
        true => {
            ArrivingFile { from, to, access: None, modified: None, directories: Some(directories) }.settle()
        }
        false => disk::copy_file(&from, &to),
    });
    match done.await {
        Ok(()) => Verdict::Status(204),
        Err(failure) => failed(x, &failure, NotFound(500)),
    }
}

/// `there`: what is in the way, if anything, is a directory.
async fn directory(x: &mut Exchange, source: DavPath, goal: TransferGoal, there: Option<bool>) -> Verdict {
    let moves = x.request.head.method == Method::Move;
    let (from, to) = (source.bare, goal.place.bare);
    if let Some(is_directory) = there {
        let to = to.clone();
        let gone = disk::away(x, move || match is_directory {
            true => disk::delete_directory(&to),
            false => disk::delete_file(&to),
        })
        .await;
        if let Err(verdict) = report(x, gone) {
            return verdict;
        }
    }
    let done = disk::away(x, move || match moves {
        true => disk::move_directory(&from, &to),
        false => disk::copy_directory(&from, &to),
    });
    match done.await {
        Ok(done) => match report(x, done) {
            Ok(()) => Verdict::Status(201),
            Err(verdict) => verdict,
        },
        Err(failure) => failed(x, &failure, NotFound(404)),
    }
}

/// Reads `Destination` and `Depth`.
fn goal(x: &mut Exchange) -> Result<TransferGoal, Verdict> {
    let Some(field) = x.request.value(&x.arena, KnownField::Destination).map(<[u8]>::to_vec) else {
        return Err(refuse(x, 400, "client sent no \"Destination\" header"));
    };
    let shown = String::from_utf8_lossy(&field).into_owned();
    let invalid = |x: &Exchange| {
        refuse(x, 400, format_args!("client sent invalid \"Destination\" header: \"{shown}\""))
    };
    let target = match path(x, &field) {
        Ok(target) => target,
        Err(ForeignDestination::Invalid) => return Err(invalid(x)),
        Err(ForeignDestination::NoHost) => return Err(refuse(x, 400, "client sent no \"Host\" header")),
        Err(ForeignDestination::OtherHost) => {
            let why = format_args!(
                "\"Destination\" URI \"{shown}\" is handled by different repository than the source URI"
            );
            return Err(refuse(x, 400, why));
        }
    };
    let target = target.to_vec();
    let Ok(parsed) = uri::internal_target(&target) else {
        let uri = String::from_utf8_lossy(&target).into_owned();
        x.log_error(&format_args!("unsafe URI \"{uri}\" was detected"));
        return Err(invalid(x));
    };
    let ends = (field.ends_with(b"/"), parsed.path.ends_with(b"/"));
    if ends != (x.uri().ends_with(b"/"), x.uri().ends_with(b"/")) {
        let uri = String::from_utf8_lossy(x.uri()).into_owned();
        let why = format_args!(
            "both URI \"{uri}\" and \"Destination\" URI \"{shown}\" should be either collections or non-collections"
        );
        return Err(refuse(x, 409, why));
    }
    if let Some(AliasedPart::Prefix(len)) = x.plan.core.alias
        && !is_below(x.uri(), &parsed.path, len)
    {
        return Err(invalid(x));
    }
    check_depth(x)?;
    let place = place_of(x, &parsed.path)?;
    Ok(TransferGoal { field, place })
}

/// Whether `path` is in the location of `source`, whose first `len` bytes `alias` replaces, and what follows them leads
/// into its directory. (nginx asks for the length alone: `/abcd../x` leaves the directory of an `alias` for `/dav/`.)
fn is_below(source: &[u8], path: &[u8], len: usize) -> bool {
    path.get(..len).is_some_and(|start| source.starts_with(start)) && !uri::is_unsafe(&path[len..])
}

/// Why a destination is not on this server.
enum ForeignDestination {
    Invalid,
    NoHost,
    OtherHost,
}

/// The part of `Destination` from its path on.
fn path<'f>(x: &mut Exchange, field: &'f [u8]) -> Result<&'f [u8], ForeignDestination> {
    if field.first() == Some(&b'/') {
        return Ok(field);
    }
    let host = x.arena.get(x.request.host).to_vec();
    if host.is_empty() {
        return Err(ForeignDestination::NoHost);
    }
    let tls = x.variable_by_name("https").is_some_and(|on| !x.text(&on).is_empty());
    let scheme: &[u8] = if tls { b"https://" } else { b"http://" };
    let rest = field.strip_prefix(scheme).ok_or(ForeignDestination::Invalid)?;
    let rest = rest.strip_prefix(&*host).ok_or(ForeignDestination::OtherHost)?;
    let slash = rest.iter().position(|byte| *byte == b'/').ok_or(ForeignDestination::Invalid)?;
    // Else the name only begins like this host's: `a.example.org`, or `a@example.org`.
    match &rest[..slash] {
        [] => Ok(&rest[slash..]),
        [b':', port @ ..] if port.iter().all(u8::is_ascii_digit) => Ok(&rest[slash..]),
        _ => Err(ForeignDestination::OtherHost),
    }
}

/// The place of another path than the request's in the same location.
fn place_of(x: &mut Exchange, path: &[u8]) -> Result<DavPath, Verdict> {
    let own = x.request.uri;
    x.request.uri = x.arena.push(path);
    let place = DavPath::of(x);
    x.request.uri = own;
    place
}

fn check_depth(x: &Exchange) -> Result<(), Verdict> {
    match (x.request.head.method, depth(x, DepthField::Infinity)) {
        (_, DepthField::Infinity) | (Method::Copy, DepthField::Zero) => Ok(()),
        (Method::Copy, _) => Err(refuse(x, 400, "\"Depth\" header must be 0 or infinity")),
        _ => Err(refuse(x, 400, "\"Depth\" header must be infinity")),
    }
}

/// Reads `Overwrite`.
fn overwrite(x: &Exchange) -> Result<bool, Verdict> {
    match x.request.value(&x.arena, KnownField::Overwrite) {
        None | Some(b"T" | b"t") => Ok(true),
        Some(b"F" | b"f") => Ok(false),
        Some(other) => {
            let other = String::from_utf8_lossy(other).into_owned();
            Err(refuse(x, 400, format_args!("client sent invalid \"Overwrite\" header: \"{other}\"")))
        }
    }
}

/// Refuses what would be its own destination, or a directory inside of what is copied or the other way round.
fn overlap(x: &Exchange, source: &DavPath, goal: &TransferGoal) -> Option<Verdict> {
    let (from, to): (&Path, &Path) = (&source.bare, &goal.place.bare);
    if from == to {
        let (uri, field) = (String::from_utf8_lossy(x.uri()), String::from_utf8_lossy(&goal.field));
        let why =
            format!("both URI \"{uri}\" and \"Destination\" URI \"{field}\" point to the same location");
        return Some(refuse(x, 403, why));
    }
    let directories = source.slash || goal.place.slash;
    let nested = directories && (to.starts_with(from) || from.starts_with(to));
    nested.then(|| not_to_collection(x, goal, 403))
}

fn not_to_collection(x: &Exchange, goal: &TransferGoal, status: u16) -> Verdict {
    let (uri, field) = (String::from_utf8_lossy(x.uri()), String::from_utf8_lossy(&goal.field));
    let method = x.request.head.method.as_str();
    refuse(x, status, format!("\"{uri}\" could not be {method}ed to collection \"{field}\""))
}
