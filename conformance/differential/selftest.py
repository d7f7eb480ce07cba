"""Tests of the harness's own parts that need no server."""

import collections
import gzip
import pathlib
import random
import re
import shutil
import tempfile
import unittest

from . import allowed, bench, client, comparison, configuration, covering, directives, generator, minimiser, request, run as runs, servers, sources


class CoveringArrayTest(unittest.TestCase):
    """The covering array covers what can be covered."""

    def test_small_array_covers_all_pairs(self):
        members = [(name, value) for name in "abcdef" for value in (1, 2)]
        array = covering.CoveringArray(members, lambda member: member, 1, lambda row, member: all(member[0] != other[0] for other in row))
        for _ in range(40):
            array.row(6)
        self.assertEqual(array.names.covered(), 15)
        self.assertEqual(array.values.covered(), 60)

    def test_same_seed_same_rows(self):
        rows = [[covering.CoveringArray(list("abcdefgh"), lambda member: (member, ""), 5).row(3) for _ in range(2)] for _ in range(2)]
        self.assertEqual(rows[0], rows[1])

    def test_rows_that_end_count_only_their_pairs(self):
        array = covering.CoveringArray(["end", "a", "b"], lambda member: (member, ""), 1, ends=lambda member: member == "end")
        array._count([0, 1, 2])
        self.assertEqual(array.names.covered(), 2)


class GeneratorTest(unittest.TestCase):
    """Configurations keep the rules of blocks."""

    def test_configurations_are_sound_and_repeat(self):
        first, again = ([generator.Generator(7, 4).start(20) for _ in range(1)][0] for _ in range(2))
        self.assertEqual(first, again)
        for made, requests in first:
            self.assertEqual(len(requests), 4)
            blocks = {level.block for level in made.levels}
            self.assertTrue("nested" not in blocks or made.nested)
            self.assertTrue("named" not in blocks or made.named)

    def test_every_directive_is_in_a_known_block(self):
        for level in directives.levels():
            self.assertIn(level.block, directives.BLOCKS.values())
        self.assertEqual(len(set(directives.levels())), len(directives.levels()), "a directive is there twice")

    def test_companions_are_in_the_table(self):
        texts = [level.text.rstrip(";") for level in directives.levels()]
        for about, patterns in directives.COMPANIONS:
            for pattern in (about, *patterns):
                self.assertTrue(any(re.fullmatch(pattern, text) for text in texts), pattern)

    def test_requests_are_aimed_at_what_is_there(self):
        made = configuration.Configuration(sources.SOURCES[0], beside=("prefix pair",))
        source = request.RequestGenerator(random.Random(3))
        targets = {one.target for one in source.requests(made, 60)}
        self.assertLessEqual({"/p", "/p?x"}, targets)

    def test_parts_can_be_taken_away(self):
        made = generator.Generator(3, 1).start(1)[0][0]
        self.assertEqual(made.only(made.parts()), made)
        self.assertEqual(made.only([]).parts(), [])
        self.assertEqual(made.only([]).source, made.source)


class RequestTest(unittest.TestCase):
    """Requests and their bytes."""

    def test_bytes(self):
        self.assertEqual(request.Request().bytes(), b"GET /t/page.txt HTTP/1.1\r\nHost: a.test\r\n\r\n")
        chunked = request.Request(method="POST", body=b"abcd", framing="trailers")
        self.assertTrue(chunked.bytes().endswith(b"\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\nX-Trailer: t\r\n\r\n"))

    def test_parts_can_be_taken_away(self):
        made = configuration.Configuration(sources.SOURCES[0])
        source = request.RequestGenerator(random.Random(2))
        for one in (source.request(made) for _ in range(300)):
            self.assertEqual(one.only(one.parts()), one)
            self.assertEqual(one.only([]).method, "GET")


class MinimiserTest(unittest.TestCase):
    """Delta debugging finds what is needed, and no more."""

    def test_one_part(self):
        self.assertEqual(minimiser.ddmin(list(range(20)), lambda lists: [7 in one for one in lists]), [7])

    def test_two_parts_far_apart(self):
        self.assertEqual(minimiser.ddmin(list(range(20)), lambda lists: [{2, 17} <= set(one) for one in lists]), [2, 17])

    def test_nothing_is_needed(self):
        self.assertEqual(minimiser.ddmin(list(range(5)), lambda lists: [True for _ in lists]), [])

    def test_nothing_is_tried_after_the_time(self):
        late = minimiser.Minimiser(None)
        late.end = 0
        self.assertEqual(late._hold(["one", "other"], "key"), [False, False])  # pylint: disable=protected-access


class AllowedTest(unittest.TestCase):
    """The list is narrow, and what it covers is what it says."""

    def test_no_rule_is_any(self):
        self.assertEqual([problem for rule in allowed.read() for problem in rule.problems()], [])

    def test_broad_rules_are_refused(self):
        for rule in (allowed.Rule("x", "status", ["a"]), allowed.Rule("r" * 30, ".*", ["a"]), allowed.Rule("r" * 30, "status"), allowed.Rule("r" * 30, "status", [".*"])):
            self.assertNotEqual(list(rule.problems()), [])

    def test_what_is_meant_always_is_missed(self):
        rule = allowed.Rule("r" * 30, "status", ["arg: u=101"], ["field: Upgrade: .*"], "^101$", "^502$", always=True)
        self.assertEqual(list(rule.problems()), [])
        self.assertNotEqual(list(allowed.Rule("r" * 30, "body", ["arg: u=101"], nginx="x", always=True).problems()), [])
        side = type("Side", (), {"directory": "/x", "address": "127.0.0.2"})
        made = bench.Bench(side, side, None, [])
        made.meant = [rule]
        case = bench.Case(configuration.Configuration(sources.SOURCES[0]), [])
        asked = request.Request(target="/t/page.txt?u=101")
        for statuses, count in ((("101", "101"), 1), ((101, 502), 0), ((200, 200), 0)):
            responses = [client.Response(int(status)) for status in statuses]
            self.assertEqual(len(made._not_met(case, asked, *responses)), count)

    def test_all_of_a_rule_must_hold(self):
        rule = allowed.Rule("r" * 30, "field:x", ["source: lua", "method: .*"], ["http2"], "^$", "1")
        met = comparison.Difference("field:x", "", "1")
        self.assertTrue(rule.covers({"source: lua", "method: GET"}, met))
        self.assertFalse(rule.covers({"source: lua", "method: GET", "http2"}, met))
        self.assertFalse(rule.covers({"source: lua"}, met))
        self.assertFalse(rule.covers({"source: lua", "method: GET"}, comparison.Difference("field:x", "1", "1")))


    def test_rules_can_be_doubted(self):
        rules = allowed.read()
        left = allowed.read(doubted="^" + re.escape(rules[0].reason) + "$")
        self.assertEqual([rule.reason for rule in left], [rule.reason for rule in rules if rule.reason != rules[0].reason])


class RunTest(unittest.TestCase):
    """A run that compared nothing, or found something, is no success."""

    def test_what_is_clean(self):
        compared = {"configurations": 3, "requests": 9}
        for counts, reproducers, clean in ((compared, [], True), (compared, ["one"], False), ({**compared, runs.RAW: 1}, [], False), ({"refused by one or both": 3}, [], False)):
            self.assertEqual(runs.is_clean(runs.Result(collections.Counter(counts)), reproducers), clean, counts)

    def test_a_server_that_does_not_start_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            sides = [servers.Server(name, shutil.which("false"), "127.0.0.1", f"{folder}/{name}") for name in ("nginx", "weir")]
            with self.assertRaisesRegex(servers.StartError, "^nginx refuses an empty server: status 1$"):
                bench.Bench(*sides, None, [1]).prove()


class FilesTest(unittest.TestCase):
    def test_what_a_request_wrote_is_noticed(self):
        with tempfile.TemporaryDirectory() as directory:
            for change in (lambda www: (www / "t/n/page.txt").write_text(""), lambda www: (www / "t/new").mkdir(), lambda www: (www / "t/page.txt").unlink()):
                www = pathlib.Path(directory) / "www"
                servers.make_files(www)
                self.assertTrue(servers.is_untouched(www))
                change(www)
                self.assertFalse(servers.is_untouched(www))
                shutil.rmtree(www)


class ComparisonTest(unittest.TestCase):
    """What is equal enough."""

    def test_times_of_the_clock(self):
        self.assertTrue(comparison.same_times("expires", ["Thu, 01 Jan 1970 00:00:01 GMT"], ["Thu, 01 Jan 1970 00:00:03 GMT"]))
        self.assertFalse(comparison.same_times("expires", ["Thu, 01 Jan 1970 00:00:01 GMT"], ["Thu, 01 Jan 1970 01:00:01 GMT"]))

    def test_ages_that_are_counted_from_the_clock(self):
        self.assertTrue(comparison.same_times("cache-control", ["max-age=71254"], ["max-age=71253"]))
        self.assertFalse(comparison.same_times("cache-control", ["max-age=3600"], ["max-age=0"]))
        self.assertFalse(comparison.same_times("cache-control", ["max-age=1"], ["no-cache"]))

    def test_packed_bodies_are_compared_unpacked(self):
        packed = [client.Response(200, fields=[("Content-Encoding", "gzip")], body=gzip.compress(b"page" * 50, level)) for level in (1, 9)]
        self.assertEqual(comparison.unpacked(packed[0]), comparison.unpacked(packed[1]))
        cut = client.Response(200, fields=[("Content-Encoding", "gzip")], body=packed[0].body[:-3])
        self.assertEqual(comparison.unpacked(cut), b"gzip:" + b"page" * 50)
        self.assertEqual(comparison.unpacked(client.Response(200, body=b"plain")), b"plain")

    def test_heads_of_chunks_are_no_difference(self):
        self.assertTrue(comparison.is_of_framing(comparison.Difference("log:sent", "131371", "131267"), 104))
        self.assertFalse(comparison.is_of_framing(comparison.Difference("log:sent", "131371", "131267"), 0))
        self.assertFalse(comparison.is_of_framing(comparison.Difference("log:status", "200", "96"), 104))

    def test_the_order_of_a_requests_lines_is_chance(self):
        lines = ["a|status=200", "b|status=204"]
        both = comparison.Comparison(*(type("Side", (), {"directory": "/x", "address": "127.0.0.2"}) for _ in range(2)))
        self.assertEqual(both.log_lines(lines, lines[::-1]), [])
        self.assertEqual([found.aspect for found in both.log_lines(lines, ["a|status=200", "b|status=403"])], ["log:status"])
        copies = ["a|uri=/t", "b|uri=/mirrored", "c|uri=/side"]
        self.assertEqual([(found.aspect, found.weir) for found in both.log_lines(copies[::2], copies)], [("log:more", copies[1])])

    def test_classes_of_messages(self):
        self.assertEqual(comparison.message_class('nginx: [emerg] "a" directive is not allowed here in /x:1'), "not allowed here")
        self.assertEqual(comparison.message_class(None), "accepted")


def run():
    """0 where all tests pass."""
    suite = unittest.TestSuite()
    for test in (CoveringArrayTest, GeneratorTest, RequestTest, MinimiserTest, AllowedTest, RunTest, ComparisonTest):
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(test))
    return 0 if unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful() else 1
