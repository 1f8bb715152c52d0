package example.holdfast;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * What to try next. A round tries each address, from a random one on, and each
 * number of its name. The next round begins behind the last one. One thread at
 * a time uses it.
 */
final class Places {
    private static final int PORT = 4653;
    private static final int TLS_PORT = 4655;
    private static final int USUAL = -1;

    /**
     * A host and a port, or the path of a Unix socket and port 0. Port -1 is
     * the usual one.
     */
    record Address(String host, int port) {
        /** `HOST[:PORT]`, `[V6]:PORT` or `/PATH`. UsageException. */
        static Address of(String text) {
            String item = text.strip();
            if (item.startsWith("/")) {
                return new Address(item, 0);
            }
            int colon = item.lastIndexOf(':');
            boolean without = colon < 0 || item.endsWith("]");
            String host = without ? item : item.substring(0, colon);
            long port = without ? USUAL
                    : Words.number(item.substring(colon + 1));
            if (host.startsWith("[") && host.endsWith("]")) {
                host = host.substring(1, host.length() - 1);
            }
            if (host.isEmpty() || !without && port < 1
                    || port > 65535) {
                throw new UsageException("no address: '" + item
                        + "'; use HOST:PORT");
            }
            return new Address(host, (int) port);
        }
    }

    /** What a socket connects to; `host` is the name that TLS verifies. */
    record Endpoint(SocketAddress address, String host, int port) {
    }

    private final int usual;
    private final List<Address> addresses;
    private final List<Address> round = new ArrayList<>();
    private final List<Endpoint> resolved = new ArrayList<>();

    Places(List<Address> addresses, boolean tls) {
        usual = tls ? TLS_PORT : PORT;
        this.addresses = new ArrayList<>(addresses);
        Collections.rotate(this.addresses,
                (int) (Math.random() * addresses.size()));
    }

    /** Whether this round goes on. */
    boolean more() {
        return !round.isEmpty() || !resolved.isEmpty();
    }

    /** A new round. */
    void begin() {
        round.clear();
        resolved.clear();
        round.addAll(addresses);
    }

    /** The next endpoint. It may wait for the resolution of a name. */
    Endpoint next() throws UnknownHostException {
        if (!more()) {
            begin();
        }
        if (resolved.isEmpty()) {
            Address address = round.remove(0);
            addresses.remove(address);
            addresses.add(address);
            resolve(address);
        }
        return resolved.remove(0);
    }

    private void resolve(Address address) throws UnknownHostException {
        if (address.port == 0) {
            resolved.add(new Endpoint(
                    UnixDomainSocketAddress.of(address.host), "", 0));
            return;
        }
        int port = address.port == USUAL ? usual : address.port;
        for (InetAddress each : InetAddress.getAllByName(address.host)) {
            resolved.add(new Endpoint(
                    new InetSocketAddress(each, port),
                    address.host, port));
        }
    }
}
