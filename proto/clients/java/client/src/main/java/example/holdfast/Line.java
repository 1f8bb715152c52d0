package example.holdfast;

import example.holdfast.Words.Garbage;
import java.util.HashMap;
import java.util.Map;

/** A reply or an event: `TAG WORD [argument] [key=value ...] [:text]`. */
record Line(String tag, String word, String argument,
        Map<String, String> keys, String text) {
    /** A line without its LF. Unknown keys and further words do no harm. */
    static Line parse(byte[] data, int from, int to) throws Garbage {
        int end = from;
        while (end < to && !(data[end] == ' ' && end + 1 < to
                && data[end + 1] == ':')) {
            if (data[end] < 0x20 || data[end] > 0x7E) {
                throw new Garbage("a line with a byte that is no text");
            }
            end++;
        }
        String text = end + 2 < to
                ? Words.text(data, end + 2, to - end - 2) : "";
        @SuppressWarnings("deprecation") // the bytes are ASCII
        String head = new String(data, 0, from, end - from);
        String[] words = head.split(" ", -1);
        if (words.length < 2) {
            throw new Garbage("no line of a broker: " + words[0]);
        }
        Map<String, String> keys = new HashMap<>();
        String argument = "";
        for (int i = 2; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            if (equals >= 0) {
                keys.put(words[i].substring(0, equals),
                        Words.decode(words[i].substring(equals + 1)));
            } else if (argument.isEmpty()) {
                argument = Words.decode(words[i]);
            }
        }
        return new Line(words[0], words[1], argument, keys, text);
    }

    boolean has(String key) {
        return keys.containsKey(key);
    }

    String key(String key) {
        return keys.getOrDefault(key, "");
    }

    /** The value of a key that must be a number. */
    long number(String key) throws Garbage {
        long number = Words.number(key(key));
        if (number < 0) {
            throw new Garbage(word + " with " + key + "=" + key(key));
        }
        return number;
    }

    /** The value of a key in ms, in seconds. */
    double seconds(String key) throws Garbage {
        return number(key) / 1000.0;
    }

    /** The number of a key that may be absent; 0: it is. */
    static long number(Map<String, String> keys, String key) {
        return Math.max(0, Words.number(keys.getOrDefault(key, "")));
    }
}
