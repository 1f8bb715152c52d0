package example.holdfast;

/**
 * Names as bytes. A name is a string in this client, and its UTF-8 on the
 * wire. A byte that is no UTF-8 is the lone surrogate U+DC00 plus the byte.
 */
public final class Names {
    private Names() {
    }

    /**
     * The string of a name that is bytes.
     *
     * @param name any bytes
     * @return the name for calls of the client
     */
    public static String of(byte[] name) {
        return Words.text(name, 0, name.length);
    }

    /**
     * The bytes of a name, such as one that a {@link Watch} tells.
     *
     * @param name a string
     * @return its bytes on the wire
     * @throws UsageException if it has a surrogate that is no such byte
     */
    public static byte[] bytes(String name) {
        return Words.bytes(name);
    }
}
