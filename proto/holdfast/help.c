/*
 * The help pages, one for each command. The manual has the whole story; this is
 * what fits a screen.
 */
#include "proto/holdfast/command.h"

#include <stdio.h>
#include <string.h>

static const char help_all[] =
    "holdfast [-a ADDR] [-u USER -s FILE] [--tls] [-o FORMAT] COMMAND ...\n"
    "\n"
    "  run KEY -- PROGRAM ARG...  run a program while holding a lock\n"
    "  lock KEY                   hold a lock until the input ends\n"
    "  show KEY                   show the holders and waiters of a lock\n"
    "  watch KEY                  print when a lock is held, and when free\n"
    "  locks                      list the locks of this broker\n"
    "  sessions                   list the sessions of this broker\n"
    "  slow                       list slow operations, losses, deadlocks\n"
    "  status                     show whether the broker can grant locks\n"
    "  top                        show contended locks and old holds\n"
    "  audit                      check all locks in Redis\n"
    "  break KEY                  take a lock from its holders\n"
    "  kill SESSION               end a session of this broker\n"
    "  drain                      stop this broker\n"
    "  bench [KEY-PREFIX]         measure the speed of a broker\n"
    "  ping                       measure a round trip\n"
    "  raw                        send and print lines of the protocol\n"
    "  secret USER                hash a secret for a broker's file\n"
    "  help COMMAND               more about one of these (also COMMAND -h)\n"
    "\n"
    "  -a ADDR     HOST:PORT, [V6]:PORT or the path of a socket; several, "
    "with\n"
    "              commas, for brokers that share one Redis. Default:\n"
    "              HOLDFAST_ADDR, else 127.0.0.1:4653 (TLS: 4655)\n"
    "  -u USER     the user, for brokers that have users. Default:\n"
    "              HOLDFAST_USER\n"
    "  -s FILE     a file with the secret of USER on one line. Default:\n"
    "              HOLDFAST_SECRET_FILE\n"
    "  --tls       use TLS; the usual port is 4655. Each of these options\n"
    "              implies --tls:\n"
    "    --tls-ca FILE           CAs that may sign the broker's certificate;\n"
    "                            default: the CAs of the system\n"
    "    --tls-cert FILE         this client's certificate, and\n"
    "    --tls-key FILE          its key; all three are PEM files\n"
    "    --tls-name NAME         the name in the broker's certificate;\n"
    "                            default: HOST\n"
    "    --tls-verify full|ca    ca: accept any name in the certificate\n"
    "              Defaults: HOLDFAST_TLS (1), HOLDFAST_TLS_CA,\n"
    "              HOLDFAST_TLS_CERT and so on\n"
    "  -o FORMAT   of lists: json (a JSON object on each line), tabs, "
    "columns;\n"
    "              default: columns on a terminal, tabs elsewhere\n"
    "  -V, -h      print the version, or this page\n"
    "\n"
    "A duration D is 1500ms, 30s, 5m, 1h, or 0.\n";

#define HELP_ASK                                                               \
    "[--wait D] [--lease D] [--keep D] [--delay D]\n"                          \
    "             [--shared | --limit N [--permits K]] [--owner W] [--note W]" \
    "\n"

static const char help_run[] =
    "holdfast run " HELP_ASK "             KEY... -- PROGRAM ARG...\n"
    "\n"
    "Takes the lock KEY, runs PROGRAM, and releases the lock when PROGRAM "
    "ends.\n"
    "Of several KEYs it takes all or none. Options may also follow KEY.\n"
    "\n"
    "  --wait D     wait for the lock for at most D (0: no wait); default: no\n"
    "               limit\n"
    "  --lease D    hold the lock for at most D; default: while PROGRAM runs\n"
    "  --shared     take a shared lock\n"
    "  --limit N    take a permit of a semaphore with N permits\n"
    "  --permits K  take K permits\n"
    "  --delay D    lock-delay: after an end without a release nobody is "
    "granted\n"
    "               the lock for D\n"
    "  --keep D     continue without a broker for at most D; default: 30s; 0: "
    "not\n"
    "               at all. The lock of a dead host stays for D after the "
    "broker\n"
    "               detects the silence, in about 11 s\n"
    "  --owner W    hold the lock as this owner\n"
    "  --note W     a note for viewers of the lock\n"
    "\n"
    "PROGRAM runs in a process group of its own, the foreground group if the\n"
    "input is a terminal. holdfast passes signals on to it. Its environment "
    "has\n"
    "HOLDFAST_LOCK, HOLDFAST_FENCE and HOLDFAST_SESSION. With several KEYs "
    "the\n"
    "first two have all keys and fences, with blanks between them.\n"
    "\n"
    "A KEY that a run above this one holds, at the same address, is refused "
    "with\n"
    "125, unless both have --shared or --limit, or --wait ends the wait.\n"
    "\n"
    "If the broker dies or drains, the session moves to another address, or "
    "to\n"
    "the same one, within --keep. PROGRAM runs on, and a waiter keeps its "
    "place.\n"
    "\n"
    "When the lock is lost, PROGRAM ends before anybody else may hold the "
    "lock.\n"
    "TERM goes to the group. KILL then ends every process that PROGRAM has\n"
    "started, in the group or not: in time before the end of a lease, or "
    "before\n"
    "the deadline when no broker answers; 100 ms after the broker said LOST.\n"
    "With --keep 0 KILL comes at once when the connection to the broker ends,\n"
    "since a living broker gives the lock away at once.\n"
    "\n"
    "When holdfast itself is killed, its holdfast-guard, a process beside it,\n"
    "kills the group as well, and then ends the lock, or leaves the queue. "
    "When\n"
    "both are killed the lock is free after --keep at the latest.\n"
    "\n"
    "Background processes of PROGRAM run on after its end, without the lock.\n"
    "\n"
    "Exit status: that of PROGRAM, or 128 and the number of its signal;\n"
    "  123  the lock was lost\n"
    "  124  the lock was not acquired in time\n"
    "  125  trouble: no broker within 10 s (or --wait), bad usage ...\n"
    "  126  PROGRAM cannot be executed\n"
    "  127  PROGRAM was not found\n";

static const char help_lock[] =
    "holdfast lock " HELP_ASK "             KEY...\n"
    "\n"
    "Takes the lock KEY, prints `fence=F ttl_ms=T`, and holds it until the "
    "end\n"
    "of the input or a signal (INT, TERM, HUP, QUIT). Of several KEYs it "
    "takes\n"
    "all or none, and prints `fence=F1,F2`. Options as for run.\n"
    "\n"
    "Exit status: 0; 123 the lock was lost; 124 it was not acquired in time;\n"
    "125 trouble.\n";

static const char help_show[] =
    "holdfast show [-o FORMAT] KEY\n"
    "\n"
    "Lists the holders and waiters of the lock KEY, at any broker, in the "
    "order of\n"
    "the queue. With tabs: kind, position, session, broker, name, owner, "
    "fence,\n"
    "ttl_ms, age_ms, note, mode, permits.\n";

static const char help_locks[] =
    "holdfast locks [-o FORMAT]\n"
    "\n"
    "Lists the locks that this broker's sessions hold or wait for. With tabs:\n"
    "name, state, holders, waiters, session, client, owner, fence, age_ms, "
    "note,\n"
    "mode, permits.\n";

static const char help_sessions[] = "holdfast sessions [-o FORMAT]\n"
                                    "\n"
                                    "Lists the sessions of this broker. With "
                                    "tabs: session, name, peer, age_ms,\n"
                                    "idle_ms, holds, waits.\n";

static const char help_slow[] =
    "holdfast slow [--kind slow|lost|deadlock] [--limit N] [-o FORMAT]\n"
    "\n"
    "Lists what this broker recorded, newest first: operations on Redis that\n"
    "took slow.threshold or longer, with the time of each stage; lost holds;\n"
    "waits ended by deadlock detection. With tabs: kind, age_ms,\n"
    "name, session, client, owner, op, result, total_us, queued_us, "
    "redis_us,\n"
    "confirm_us, reason, fence, late_us, cycle. JSON has more.\n";

static const char help_top[] =
    "holdfast top [-n N] [--interval D] [-o FORMAT]\n"
    "\n"
    "Shows the most contended locks of this broker in the last minutes, the\n"
    "oldest holds and the oldest waits. On a terminal the list is drawn each\n"
    "second, as far as there is room, until q or Ctrl-C. It has rates if the\n"
    "user may send STATS. Elsewhere, or with -o, the list is printed once.\n"
    "\n"
    "  -n N          at most N (up to 100) of each; default, printed once: 10\n"
    "  --interval D  time between two queries, at least 100ms\n"
    "\n"
    "With tabs: kind (contended, holder or waiter), name, waits, waited_ms,\n"
    "waiters, age_ms, session, client, owner, fence, note, mode, permits.\n";

static const char help_bench[] =
    "holdfast bench [-c CONNECTIONS] [-t DURATION] [--keys N] [--wait D]\n"
    "               [-o FORMAT] [KEY-PREFIX]\n"
    "\n"
    "Takes and releases locks for some time, and prints rates and latencies.\n"
    "This is a heavy load for the broker and its Redis.\n"
    "\n"
    "  -c CONNECTIONS  connections, at most 1000; default: 10. Each has one\n"
    "                  request at a time\n"
    "  -t DURATION     at most 1h; default: 5s. Ctrl-C ends it sooner\n"
    "  --keys N        number of locks, KEY-PREFIX0 and on (bench/0); "
    "default:\n"
    "                  as many as connections. With fewer, connections "
    "contend\n"
    "  --wait D        as for run; a longer wait counts as an error\n"
    "\n"
    "With tabs: op (pair, lock, unlock), count, per_second, p50_us, p99_us,\n"
    "max_us, errors, connections, keys, time_ms. The time of a pair is from "
    "the\n"
    "sending of its LOCK to the answer to its UNLOCK.\n"
    "\n"
    "Exit status: 0; 1 there were errors; 125 trouble.\n";

static const char help_audit[] =
    "holdfast audit [-o FORMAT]\n"
    "\n"
    "Lets the broker check all locks in Redis, and prints the findings: holds\n"
    "and waits that are older than the broker's configuration expects, holds "
    "of\n"
    "a dead broker, invalid records. It changes nothing. With tabs: kind, "
    "name,\n"
    "age_ms, session, broker, client, owner, fence, ttl_ms, waiters, note, "
    "why.\n"
    "\n"
    "Exit status: 0 no findings; 1 findings; 125 trouble: no broker, another\n"
    "audit is under way, a Redis node did not answer.\n";

static const char help_status[] =
    "holdfast status [-o FORMAT]\n"
    "\n"
    "Prints each Redis node that the broker needs, and whether the broker can\n"
    "grant every lock now. With tabs: node, role, state (ready, settling,\n"
    "refusing or away), reason, since_ms, after_ms, text.\n"
    "\n"
    "Exit status: 0 it can; 1 it cannot; 125 trouble: no broker.\n";

static const char help_watch[] =
    "holdfast watch [-o FORMAT] KEY...\n"
    "\n"
    "Prints the state of each lock, held or free, and each change. Of changes "
    "in\n"
    "quick succession it may print only the last one. With tabs: event (held "
    "or\n"
    "free), lock, fence, holders, name, owner, note. It continues at another\n"
    "broker, or when the broker is back, until a signal comes.\n";

static const char help_break[] =
    "holdfast break [--fence F] KEY\n"
    "\n"
    "Takes the lock KEY from its holders, sends them LOST, and prints\n"
    "`holders=N`. With --fence only the holder with that fence loses it. The\n"
    "next waiter gets the lock when the holder's broker has released it, or "
    "when\n"
    "the lease ends.\n";

static const char help_kill[] = "holdfast kill SESSION\n"
                                "\n"
                                "Ends a session of this broker and releases "
                                "its holds. `holdfast sessions`\n"
                                "and `holdfast show` print the session's ID.\n";

static const char help_drain[] = "holdfast drain\n"
                                 "\n"
                                 "Stops the broker, as SIGTERM does. Its "
                                 "clients move to other brokers, with\n"
                                 "their holds.\n";

static const char help_ping[] = "holdfast ping\n"
                                "\n"
                                "Connects, sends PING to the broker, and "
                                "prints the time of the round trip.\n"
                                "Exit status 125: there is no broker.\n";

static const char help_raw[] =
    "holdfast raw\n"
    "\n"
    "Sends the input to the broker unchanged, and prints the replies, until "
    "the\n"
    "broker closes the connection. The broker does so after the end of the "
    "input\n"
    "and the last reply. -u and -s have no effect: the input has the AUTH.\n"
    "Try:  echo HELP | holdfast raw\n";

static const char help_secret[] =
    "holdfast secret [--new FILE] USER\n"
    "\n"
    "Prints the line of USER for a broker's auth.users_file, with the hash of\n"
    "the secret. Append the rights. The secret is one line of the input, at\n"
    "least 16 bytes. It should be random, since the hash is a fast one. With\n"
    "--new the command makes the secret and writes it to FILE, for -s. FILE "
    "must\n"
    "not exist yet; only its owner may read it. No broker is needed.\n";

bool
help_print(const char *command)
{
    static const struct {
        const char *name;
        const char *text;
    } pages[] = {
        {"run", help_run},
        {"lock", help_lock},
        {"show", help_show},
        {"locks", help_locks},
        {"sessions", help_sessions},
        {"slow", help_slow},
        {"status", help_status},
        {"top", help_top},
        {"audit", help_audit},
        {"watch", help_watch},
        {"break", help_break},
        {"kill", help_kill},
        {"drain", help_drain},
        {"bench", help_bench},
        {"ping", help_ping},
        {"raw", help_raw},
        {"secret", help_secret},
    };

    if (command == NULL) {
        (void)fputs(help_all, stdout);
        return true;
    }
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (strcmp(command, pages[i].name) == 0) {
            (void)fputs(pages[i].text, stdout);
            return true;
        }
    }
    return false;
}
