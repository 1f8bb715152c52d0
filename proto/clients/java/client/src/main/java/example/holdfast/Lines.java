package example.holdfast;

import example.holdfast.Words.Garbage;
import java.nio.ByteBuffer;
import java.util.Arrays;

/** Bytes in, lines out. It keeps at most one unfinished line. */
final class Lines {
    /** A longer line of a broker is an error. */
    static final int LINE_MAX = 64 * 1024;

    private byte[] data = new byte[4096];
    private int from;
    private int to;
    private int seen;

    /** Adds bytes. The lines before them have been taken. */
    void feed(ByteBuffer more) {
        System.arraycopy(data, from, data, 0, to - from);
        seen -= from;
        to -= from;
        from = 0;
        if (data.length < to + more.remaining()) {
            data = Arrays.copyOf(data, to + more.remaining());
        }
        int count = more.remaining();
        more.get(data, to, count);
        to += count;
    }

    /** The next line; null: there is none yet. An empty line is none. */
    Line next() throws Garbage {
        while (true) {
            while (seen < to && data[seen] != '\n') {
                seen++;
            }
            if (seen - from > LINE_MAX) {
                throw new Garbage("a line of more than " + LINE_MAX
                        + " bytes");
            }
            if (seen == to) {
                return null;
            }
            int begin = from;
            int end = seen > begin && data[seen - 1] == '\r' ? seen - 1
                    : seen;
            from = ++seen;
            if (end > begin) {
                return Line.parse(data, begin, end);
            }
        }
    }
}
