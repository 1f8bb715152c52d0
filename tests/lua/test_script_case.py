"""The checks of script_case.py refuse another answer than the wanted one."""

from script_case import ScriptCase
from scripts import GRANTED, OK, WAITING, who


class Checks(ScriptCase):
    def test_another_answer_fails(self):
        held = self.hold(who(1))
        self.wait(who(2))
        for what, check, *arguments in (
                ("status", self.says, held, WAITING),
                ("field", lambda: self.says(held, OK, fence=held.fence + 1)),
                ("no error", self.assert_error, "ERR",
                 self.connection.command, "PING"),
                ("error", self.assert_error, "OOM",
                 self.connection.command, "NONSENSE"),
                ("hold", self.hold, who(3)),
                ("wait", self.wait, who(1), None, "holdfast:{free}"),
                ("change", self.assert_untouched, self.one.acquire, who(4)),
                ("order", self.assert_order, who(2), who(1)),
                ("holders", self.assert_holders, who(2)),
                ("grants", self.assert_grants, held, who(1)),
                ("holder", self.assert_holder, who(2)),
                ("flags", self.assert_holder, who(1), GRANTED)):
            with self.subTest(what), self.assertRaises(AssertionError):
                check(*arguments)
