package example.holdfast;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;

/** TLS without a socket: the engine's mutex guards reading and writing. */
final class Tls {
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

    private final SSLEngine ssl;
    /** Bytes of the network, not yet decrypted; ready for reading. */
    private ByteBuffer in = ByteBuffer.allocate(0);
    /** Bytes for the network, ready for writing. */
    private ByteBuffer out;
    private ByteBuffer plain;

    Tls(SSLContext context, String host, int port) {
        ssl = context.createSSLEngine(host, port);
        ssl.setUseClientMode(true);
        SSLParameters parameters = ssl.getSSLParameters();
        // Without this Java verifies the chain, and no name.
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        ssl.setSSLParameters(parameters);
        out = ByteBuffer.allocate(ssl.getSession().getPacketBufferSize());
        plain = ByteBuffer.allocate(
                ssl.getSession().getApplicationBufferSize());
    }

    /**
     * The handshake, on a socket that blocks, within some ms. SSLException: it
     * failed. SocketTimeoutException: it takes longer.
     */
    void shake(Socket socket, int ms) throws IOException {
        long end = System.nanoTime() + ms * 1_000_000L;
        InputStream input = socket.getInputStream();
        OutputStream output = socket.getOutputStream();
        byte[] data = new byte[16384];
        ssl.beginHandshake();
        try {
            while (true) {
                HandshakeStatus status = advance();
                output.write(written());
                if (status == HandshakeStatus.NOT_HANDSHAKING) {
                    return;
                }
                long left = (end - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    throw new SocketTimeoutException("the TLS handshake is"
                            + " not over after " + ms + " ms");
                }
                socket.setSoTimeout((int) left);
                int count = input.read(data);
                if (count < 0) {
                    throw new SSLException("closed in the handshake");
                }
                add(ByteBuffer.wrap(data, 0, count));
            }
        } catch (SSLException failure) {
            alert(output);
            throw failure;
        }
    }

    private void alert(OutputStream output) throws IOException {
        ssl.closeOutbound();
        try {
            wrap(NOTHING);
        } finally {
            output.write(written());
        }
    }

    /** All steps that need no further bytes of the peer. */
    private HandshakeStatus advance() throws SSLException {
        while (true) {
            HandshakeStatus status = ssl.getHandshakeStatus();
            switch (status) {
                case NEED_TASK -> tasks();
                case NEED_WRAP -> {
                    if (wrap(NOTHING).getStatus() == Status.CLOSED) {
                        return status;
                    }
                }
                case NEED_UNWRAP, NEED_UNWRAP_AGAIN -> {
                    if (!unwrap()) {
                        return status;
                    }
                }
                default -> {
                    return HandshakeStatus.NOT_HANDSHAKING;
                }
            }
        }
    }

    private void tasks() {
        for (Runnable task = ssl.getDelegatedTask(); task != null;
                task = ssl.getDelegatedTask()) {
            task.run();
        }
    }

    private SSLEngineResult wrap(ByteBuffer from) throws SSLException {
        while (true) {
            SSLEngineResult result = ssl.wrap(from, out);
            if (result.getStatus()
                    != Status.BUFFER_OVERFLOW) {
                return result;
            }
            out = larger(out);
        }
    }

    /** False: it needs more bytes, or the peer has closed. */
    private boolean unwrap() throws SSLException {
        while (true) {
            SSLEngineResult result = ssl.unwrap(in, plain);
            switch (result.getStatus()) {
                case BUFFER_OVERFLOW -> plain = larger(plain);
                case OK -> {
                    return true;
                }
                default -> {
                    return false;
                }
            }
        }
    }

    private static ByteBuffer larger(ByteBuffer buffer) {
        return ByteBuffer.allocate(buffer.capacity() * 2).put(buffer.flip());
    }

    private void add(ByteBuffer data) {
        byte[] both = Arrays.copyOfRange(in.array(), in.position(),
                in.position() + in.remaining() + data.remaining());
        data.get(both, in.remaining(), data.remaining());
        in = ByteBuffer.wrap(both);
    }

    private byte[] written() {
        byte[] data = Arrays.copyOf(out.array(), out.position());
        out.clear();
        return data;
    }

    /** Bytes for the socket. */
    byte[] encrypt(byte[] data) throws SSLException {
        ByteBuffer from = ByteBuffer.wrap(data);
        while (from.hasRemaining()) {
            if (wrap(from).bytesProduced() == 0) {
                throw new SSLException("TLS was closed, or begins anew");
            }
        }
        return written();
    }

    /** Bytes of the socket; the result is valid until the next call. */
    ByteBuffer decrypt(ByteBuffer data) throws SSLException {
        add(data);
        plain.clear();
        while (in.hasRemaining() && unwrap()) {
            advance(); // of a later handshake: its answers are sent later
        }
        return plain.flip();
    }
}
