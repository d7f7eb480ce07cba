//! The table of what memory is held for.

use super::super::reply::{ReplyFailure, ReplySink, pause};
use super::tables::TopTables;
use crate::memory::ServerMemory;
use crate::source::{PATIENCE, ServerSource};
use crate::table::{TableCell, TableColumn, TableReport};

/// Tables, one every `every`; one where that is nothing.
pub(super) fn respond(
    source: &ServerSource,
    tables: &TopTables,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    for number in 0..tables.count {
        if number > 0 && !pause(reply, tables.every) {
            break;
        }
        let memory = ServerMemory::now(source, PATIENCE);
        reply.out(report(&memory).write(tables.json).as_bytes())?;
        if memory.stuck > 0 {
            reply.note(&format!("{} workers are busy; theirs are missing", memory.stuck))?;
        }
        if tables.every.is_zero() {
            break;
        }
    }
    Ok(())
}

/// A row for each kind, the largest first.
fn report(memory: &ServerMemory) -> TableReport {
    let mut report = TableReport::new(&COLUMNS);
    for row in memory.rows() {
        let each = row.things.filter(|things| *things > 0).map(|things| row.bytes / things);
        report.row([
            TableCell::Text(row.kind),
            row.things.map_or(TableCell::None, TableCell::Count),
            TableCell::Bytes(row.bytes),
            each.map_or(TableCell::None, TableCell::Bytes),
            TableCell::text(row.basis),
            TableCell::Text(row.says),
        ]);
    }
    report
}

const COLUMNS: [TableColumn; 6] = [
    TableColumn("kind", "kind"),
    TableColumn("things", "things"),
    TableColumn("bytes", "bytes"),
    TableColumn("each", "bytes_each"),
    TableColumn("basis", "basis"),
    TableColumn("what", "means"),
];
