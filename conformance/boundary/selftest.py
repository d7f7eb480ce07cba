"""Tests of readers, cases and rules; they need no server."""

import random
import unittest

from . import client, http2, judge, oddities, readers, run as runs

HEAD = b"POST /up/1 HTTP/1.1\r\nHost: a.test\r\n"


class ReadersTest(unittest.TestCase):
    """What has one end for all readers, and what has not."""

    def test_plain_requests_have_one_end(self):
        for framing in ("none", "length", "chunked"):
            self.assertIsNone(readers.disagreement(oddities.Case(framing).drafted("/up/1").bytes()), framing)

    def test_what_hides_a_request_is_found(self):
        hidden = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
        for fields in (b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: %d\r\nContent-Length: 0\r\n" % len(hidden), b"Content-Length: %d\r\nTransfer_Encoding: chunked\r\n" % len(hidden),
                       b"X: a\rContent-Length: %d\r\n" % len(hidden), b"X: a\nContent-Length: %d\r\n" % len(hidden), b"Content-Length : %d\r\n" % len(hidden), b"Content-Length: +%d\r\n" % len(hidden)):
            self.assertIsNotNone(readers.disagreement(HEAD + fields + b"\r\n" + hidden), fields)

    def test_chunks_that_end_elsewhere_for_others_are_found(self):
        head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        self.assertIsNone(readers.disagreement(head + b"1;a=b\r\nx\r\n0\r\nX-T: t\r\n\r\n"))
        for body in (b"0x1\r\nx\r\n0\r\n\r\n", b"1\nx\r\n0\r\n\r\n", b"1;a\nb\r\nx\r\n0\r\n\r\n", b"1\r\nx\n0\r\n\r\n", b"+1\r\nx\r\n0\r\n\r\n", b"1\r\nx\r\n0\n\r\n"):
            self.assertIsNotNone(readers.disagreement(head + body), body)


class CasesTest(unittest.TestCase):
    """Names and bytes of cases."""

    def test_names_lead_back_to_cases(self):
        drawn = random.Random(1)
        for case in [*oddities.singles(), *http2.singles(), *(oddities.drawn(drawn) for _ in range(200)), *(http2.drawn(drawn) for _ in range(200))]:
            self.assertEqual(runs.parsed(str(case)), case)
            self.assertEqual(str(case), str(case).strip())
            case.stream("/up/1")

    def test_the_corpus_can_be_read(self):
        self.assertGreater(len(runs.corpus()), 20)

    def test_statuses_are_counted(self):
        two = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 400 Bad\r\n\r\n"
        self.assertEqual(client.statuses(two), [200, 200, 400])
        self.assertEqual(http2.status(b"\x88"), 200)
        self.assertEqual(http2.status(b"\x48\x03403"), 403)
        self.assertEqual(http2.status(b"\x48\x82\x68\x01"), 401)


class RulesTest(unittest.TestCase):
    """The list of what is meant."""

    def test_every_rule_has_a_reason_and_a_bound(self):
        for rule in judge.rules():
            self.assertEqual(list(rule.problems()), [])

    def test_looser_and_other_are_faults(self):
        good = b"GET /up/1 HTTP/1.1\r\nHost: a\r\n\r\n"
        weir, refused = client.Outcome([200], "closed", [good]), client.Outcome([400], "closed")
        self.assertEqual([fault.aspect for fault in judge.beside("up", weir, {"nginx": refused})], ["looser"])
        self.assertEqual([fault.aspect for fault in judge.beside("up", refused, {"nginx": weir})], [])
        other = client.Outcome([200], "closed", [good.replace(b"GET", b"PUT")])
        self.assertEqual([fault.aspect for fault in judge.beside("up", weir, {"nginx": other})], ["other"])


def run():
    """All of them; the status of the program."""
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in (ReadersTest, CasesTest, RulesTest))
    return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
