package example.holdfast.driver;

import example.holdfast.Ask;
import example.holdfast.DeadlockException;
import example.holdfast.Detached;
import example.holdfast.Freed;
import example.holdfast.Hold;
import example.holdfast.Holdfast;
import example.holdfast.HoldfastException;
import example.holdfast.LockLostException;
import example.holdfast.Member;
import example.holdfast.Names;
import example.holdfast.NotHeldException;
import example.holdfast.Options;
import example.holdfast.Watch;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** The driver for the conformance suite: see ../conformance/README.md. */
public final class Driver {
    /** An ID: a wait, then a hold or a watch. */
    private static final class Item {
        final CountDownLatch told = new CountDownLatch(1);
        volatile CompletableFuture<?> wait;
        volatile Hold hold;
        volatile Detached detached;
        volatile Watch<?> watch;
    }

    private final ExecutorService threads = Executors.newCachedThreadPool(
            work -> {
                Thread thread = new Thread(work, "driver");
                thread.setDaemon(true);
                return thread;
            });
    private final Map<String, Item> items = new ConcurrentHashMap<>();
    private volatile Holdfast client;

    private Driver() {
    }

    /**
     * Runs the commands of stdin.
     *
     * @param arguments none
     * @throws IOException of stdin
     */
    public static void main(String[] arguments) throws IOException {
        new Driver().run();
        System.exit(0);
    }

    private void run() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(
                System.in, StandardCharsets.ISO_8859_1));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (!line.isBlank()) {
                act(new Command(line));
            }
        }
        if (client != null) {
            client.close();
        }
    }

    private static void say(Object... words) {
        List<String> all = new ArrayList<>();
        for (Object word : words) {
            if (!word.toString().isEmpty()) {
                all.add(word.toString());
            }
        }
        byte[] line = (String.join(" ", all) + "\n").getBytes(
                StandardCharsets.US_ASCII);
        synchronized (System.out) {
            System.out.write(line, 0, line.length);
            System.out.flush();
        }
    }

    private static String failed(Throwable thrown) {
        Throwable failure = thrown instanceof CompletionException
                ? thrown.getCause() : thrown;
        if (failure instanceof CancellationException) {
            return "err CANCELLED";
        }
        if (failure instanceof DeadlockException deadlock) {
            List<String> names = new ArrayList<>();
            for (String name : deadlock.cycle()) {
                names.add(Command.encode(name).replace(",", "%2C"));
            }
            return "err DEADLOCK cycle=" + String.join(",", names);
        }
        if (failure instanceof HoldfastException known) {
            return "err " + known.code();
        }
        failure.printStackTrace();
        return "err INTERNAL";
    }

    private void act(Command command) {
        switch (command.verb) {
            case "connect" -> threads.execute(() -> connect(command));
            case "close" -> threads.execute(() -> {
                client.close();
                say("closed");
            });
            case "lock", "await", "adopt" -> {
                items.put(command.id, new Item());
                begin(command);
            }
            case "watch" -> {
                items.put(command.id, new Item());
                threads.execute(() -> watch(command));
            }
            case "cancel" -> item(command).wait.cancel(true);
            case "unwatch" -> item(command).watch.close();
            case "check" -> say(command.id, checked(item(command)));
            case "left" -> {
                Item item = item(command);
                say(command.id, "left", (item.detached != null
                        ? item.detached.left() : item.hold.left()).toMillis());
            }
            case "unlock", "renew", "note" -> threads.execute(() -> {
                try {
                    say(command.id, about(command));
                } catch (HoldfastException failure) {
                    say(command.id, failed(failure));
                }
            });
            default -> say(command.id, "unsupported");
        }
    }

    private Item item(Command command) {
        return items.get(command.id);
    }

    private void connect(Command command) {
        Options options = Options.at(command.id).onMove(() -> say("moved"));
        for (Map.Entry<String, String> each : command.keys.entrySet()) {
            String value = each.getValue();
            options = switch (each.getKey()) {
                case "keep" -> options.keep(command.time("keep"));
                case "heartbeat" -> options.heartbeat(
                        command.time("heartbeat"));
                case "name" -> options.name(value);
                case "user" -> options.user(value,
                        command.keys.get("secret"));
                case "ca" -> options.ca(Path.of(value));
                case "server_name" -> options.serverName(value);
                case "cert" -> options.cert(Path.of(value),
                        Path.of(command.keys.get("key")));
                default -> options;
            };
        }
        try {
            client = Holdfast.connect(options);
            say("connected");
        } catch (HoldfastException failure) {
            say(failed(failure));
        }
    }

    private void begin(Command command) {
        Item item = item(command);
        try {
            if (client == null) {
                say(command.id, "err CLOSED");
            } else if (command.verb.equals("adopt")) {
                item.detached = client.adopt(command.names.get(0),
                        Long.parseLong(command.names.get(1)));
                say(command.id, "adopted");
            } else if (command.verb.equals("await")) {
                CompletableFuture<Freed> wait = client.awaitFreeAsync(
                        command.names.get(0), command.time("wait"));
                item.wait = wait;
                wait.whenComplete((freed, failure) -> say(command.id,
                        failure != null ? failed(failure) : words(freed)));
            } else if (command.keys.containsKey("detached")) {
                threads.execute(() -> detached(command, item));
            } else {
                lock(command, item);
            }
        } catch (HoldfastException failure) {
            say(command.id, failed(failure));
        }
    }

    private static Ask ask(Command command) {
        String mode = command.keys.getOrDefault("mode", "");
        Ask ask = switch (mode) {
            case "shared" -> Ask.shared();
            case "upgradable" -> Ask.upgradable();
            default -> !command.keys.containsKey("limit") ? Ask.plain()
                    : Ask.semaphore(Integer.parseInt(
                            command.keys.get("limit")),
                            Integer.parseInt(command.keys
                                    .getOrDefault("permits", "1")));
        };
        for (Map.Entry<String, String> each : command.keys.entrySet()) {
            String value = each.getValue();
            ask = switch (each.getKey()) {
                case "wait" -> ask.until(command.time("wait"));
                case "lease" -> ask.lease(command.time("lease"));
                case "delay" -> ask.delay(command.time("delay"));
                case "owner" -> ask.owner(value);
                case "note" -> ask.note(value);
                case "tree" -> ask.tree();
                case "wanted" -> ask.onWanted((hold, waiters) ->
                        say(command.id, "wanted", waiters));
                default -> ask;
            };
        }
        return ask;
    }

    private void lock(Command command, Item item) {
        CompletableFuture<Hold> wait = client.lockAsync(command.names,
                ask(command).onLost(hold -> threads.execute(() -> {
                    try {
                        item.told.await(); // "lost" comes behind "held"
                    } catch (InterruptedException e) {
                        return;
                    }
                    String why = hold.lost().orElse("not");
                    if (!why.equals("closed")) { // the suite has no such loss
                        say(command.id, "lost", why);
                    }
                })));
        item.wait = wait;
        wait.whenComplete((hold, failure) -> {
            if (failure != null) {
                say(command.id, failed(failure));
                return;
            }
            item.hold = hold;
            List<String> fences = new ArrayList<>();
            hold.fences().forEach(fence -> fences.add(fence.toString()));
            say(command.id, "held", String.join(",", fences));
            item.told.countDown();
        });
    }

    private void detached(Command command, Item item) {
        try {
            item.detached = client.detached(command.names.get(0),
                    ask(command));
            say(command.id, "held", item.detached.fence());
        } catch (HoldfastException failure) {
            say(command.id, failed(failure));
        }
    }

    private static String words(Freed freed) {
        return "free" + (freed.fence() > 0 ? " fence=" + freed.fence() : "")
                + note(freed.note());
    }

    private static String note(String note) {
        return note.isEmpty() ? "" : " note=" + Command.encode(note);
    }

    private static String checked(Item item) {
        try {
            if (item.detached != null) {
                item.detached.check();
            } else if (item.hold != null) {
                item.hold.check();
            } else {
                return "lost notheld";
            }
            return "good";
        } catch (LockLostException lost) {
            return "lost " + lost.why();
        } catch (NotHeldException failure) {
            return "lost released";
        }
    }

    private String about(Command command) {
        Item item = item(command);
        Duration delay = command.time("delay");
        switch (command.verb) {
            case "unlock" -> {
                if (item.detached != null) {
                    item.detached.release();
                } else if (delay != null) {
                    item.hold.release(delay);
                } else {
                    item.hold.release();
                }
                return "released";
            }
            case "renew" -> {
                if (item.detached != null) {
                    item.detached.renew(command.time("lease"));
                } else {
                    item.hold.renew(command.time("lease"));
                }
                return "renewed";
            }
            default -> {
                item.hold.note(String.join("", command.names));
                return "noted";
            }
        }
    }

    private void watch(Command command) {
        Item item = item(command);
        try {
            if (command.keys.containsKey("members")) {
                Watch<List<Member>> watch = client.members(
                        command.names.get(0));
                item.watch = watch;
                watch.forEachRemaining(all -> {
                    List<String> words = new ArrayList<>();
                    for (Member one : all) {
                        words.add(one.fence() + (one.note().isEmpty() ? ""
                                : "=" + Command.encode(one.note())));
                    }
                    say(command.id, "members", String.join(" ", words));
                });
            } else {
                Watch<Optional<Member>> watch = client.watch(
                        command.names.get(0));
                item.watch = watch;
                watch.forEachRemaining(holder -> say(command.id,
                        holder.map(one -> "held " + one.fence()
                                + note(one.note())).orElse("free")));
            }
            say(command.id, "over");
        } catch (HoldfastException failure) {
            say(command.id, failed(failure));
        }
    }

    /** A line of stdin. */
    private static final class Command {
        final String verb;
        final String id;
        final List<String> names = new ArrayList<>();
        final Map<String, String> keys = new HashMap<>();

        Command(String line) {
            String[] words = line.split(" ");
            verb = words[0];
            id = words.length > 1 ? words[1] : "";
            for (int i = 2; i < words.length; i++) {
                int equals = words[i].indexOf('=');
                if (equals < 0) {
                    names.add(decode(words[i]));
                } else {
                    keys.put(words[i].substring(0, equals),
                            decode(words[i].substring(equals + 1)));
                }
            }
        }

        Duration time(String key) {
            String value = keys.get(key);
            if (value == null) {
                return null;
            }
            int digits = 0;
            while (digits < value.length()
                    && Character.isDigit(value.charAt(digits))) {
                digits++;
            }
            long number = Long.parseLong(value.substring(0, digits));
            return switch (value.substring(digits)) {
                case "s" -> Duration.ofSeconds(number);
                case "m" -> Duration.ofMinutes(number);
                case "h" -> Duration.ofHours(number);
                default -> Duration.ofMillis(number);
            };
        }

        static String decode(String word) {
            byte[] data = new byte[word.length()];
            int n = 0;
            for (int i = 0; i < word.length(); i++) {
                if (word.charAt(i) == '%') {
                    data[n++] = (byte) Integer.parseInt(
                            word.substring(i + 1, i + 3), 16);
                    i += 2;
                } else {
                    data[n++] = (byte) word.charAt(i);
                }
            }
            return Names.of(Arrays.copyOf(data, n));
        }

        static String encode(String word) {
            StringBuilder out = new StringBuilder();
            for (byte each : Names.bytes(word)) {
                boolean plain = each > 0x20 && each < 0x7F && each != '%'
                        && each != '=' && !(each == ':' && out.isEmpty());
                out.append(plain ? String.valueOf((char) each)
                        : String.format("%%%02X", each & 0xFF));
            }
            return out.toString();
        }
    }
}
