package example.holdfast;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Words of the wire. Names are bytes there, and strings here: a byte that is
 * no UTF-8 is the lone surrogate U+DC00 plus the byte.
 */
final class Words {
    private static final String HEX = "0123456789ABCDEF";
    private static final char ESCAPE = 0xDC00;
    private static final int DIGITS_MAX = 18;

    private Words() {
    }

    /** The bytes of a name. UsageException: it has a lone surrogate. */
    static byte[] bytes(String text) {
        byte[] out = new byte[text.length() * 3];
        int n = 0;
        for (int i = 0; i < text.length();) {
            int c = text.codePointAt(i);
            i += Character.charCount(c);
            if (c < 0x80) {
                out[n++] = (byte) c;
            } else if (c >= ESCAPE + 0x80 && c <= ESCAPE + 0xFF) {
                out[n++] = (byte) (c - ESCAPE);
            } else if (c >= 0xD800 && c <= 0xDFFF) {
                throw new UsageException("a name with a lone surrogate");
            } else {
                byte[] some = Character.toString(c)
                        .getBytes(StandardCharsets.UTF_8);
                System.arraycopy(some, 0, out, n, some.length);
                n += some.length;
            }
        }
        return Arrays.copyOf(out, n);
    }

    /** The inverse of bytes(). */
    static String text(byte[] data, int from, int count) {
        CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder();
        ByteBuffer in = ByteBuffer.wrap(data, from, count);
        CharBuffer out = CharBuffer.allocate(count);
        while (true) {
            CoderResult result = decoder.decode(in, out, true);
            if (!result.isError()) {
                return out.flip().toString();
            }
            for (int i = 0; i < result.length(); i++) {
                out.put((char) (ESCAPE + (in.get() & 0xFF)));
            }
            decoder.reset();
        }
    }

    /** A name or a value, percent-encoded (1.2). */
    static String encode(String value) {
        byte[] data = bytes(value);
        StringBuilder out = new StringBuilder(data.length + 8);
        for (int i = 0; i < data.length; i++) {
            int b = data[i] & 0xFF;
            if (b < 0x21 || b > 0x7E || b == '%' || b == '='
                    || b == ':' && i == 0) {
                out.append('%').append(HEX.charAt(b >> 4))
                        .append(HEX.charAt(b & 15));
            } else {
                out.append((char) b);
            }
        }
        return out.toString();
    }

    /** The inverse of encode(). Garbage: it is malformed. */
    static String decode(String word) throws Garbage {
        if (word.indexOf('%') < 0) {
            return word;
        }
        byte[] out = new byte[word.length()];
        int n = 0;
        for (int i = 0; i < word.length(); i++) {
            char c = word.charAt(i);
            if (c == '%') {
                int high = hex(word, i + 1);
                int low = hex(word, i + 2);
                if (high < 0 || low < 0) {
                    throw new Garbage(
                            "a percent sign without two hex digits: " + word);
                }
                c = (char) (high * 16 + low);
                i += 2;
            }
            out[n++] = (byte) c;
        }
        return text(out, 0, n);
    }

    private static int hex(String word, int at) {
        return at < word.length() ? Character.digit(word.charAt(at), 16) : -1;
    }

    /** The number of a word; -1: it is none. */
    static long number(String word) {
        if (word.isEmpty() || word.length() > DIGITS_MAX) {
            return -1;
        }
        for (int i = 0; i < word.length(); i++) {
            if (word.charAt(i) < '0' || word.charAt(i) > '9') {
                return -1;
            }
        }
        return Long.parseLong(word);
    }

    /** A duration of the wire, in ms. */
    static String duration(double seconds) {
        return Long.toString(Math.round(seconds * 1000));
    }

    /** The peer has sent something that is not the protocol. */
    static final class Garbage extends Exception {
        Garbage(String text) {
            super(text);
        }
    }
}
