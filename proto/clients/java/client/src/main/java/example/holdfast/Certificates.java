package example.holdfast;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** An SSLContext from PEM files. */
final class Certificates {
    private static final String KEY = "PRIVATE KEY-----";

    private Certificates() {
    }

    /** Each file may be null. UsageException: one cannot be read. */
    static SSLContext context(Path ca, Path cert, Path key) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(cert == null ? null : own(cert, key),
                    ca == null ? null : trusted(ca), null);
            return context;
        } catch (IOException | GeneralSecurityException failure) {
            UsageException error = new UsageException("TLS: " + failure);
            error.initCause(failure);
            throw error;
        }
    }

    private static Certificate[] read(Path file)
            throws IOException, GeneralSecurityException {
        Collection<? extends Certificate> all =
                CertificateFactory.getInstance("X.509").generateCertificates(
                        new ByteArrayInputStream(Files.readAllBytes(file)));
        if (all.isEmpty()) {
            throw new IOException(file + " has no certificate");
        }
        return all.toArray(new Certificate[0]);
    }

    private static KeyStore store()
            throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static TrustManager[] trusted(Path ca)
            throws IOException, GeneralSecurityException {
        KeyStore store = store();
        int n = 0;
        for (Certificate each : read(ca)) {
            store.setCertificateEntry("ca" + n++, each);
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(
                TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    private static KeyManager[] own(Path cert, Path key)
            throws IOException, GeneralSecurityException {
        KeyStore store = store();
        Certificate[] chain = read(cert);
        store.setKeyEntry("own", privateKey(key,
                chain[0].getPublicKey().getAlgorithm()), new char[0], chain);
        KeyManagerFactory factory = KeyManagerFactory.getInstance(
                KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, new char[0]);
        return factory.getKeyManagers();
    }

    private static PrivateKey privateKey(Path file, String algorithm)
            throws IOException, GeneralSecurityException {
        String text = Files.readString(file, StandardCharsets.US_ASCII);
        int begin = text.indexOf("-----BEGIN " + KEY);
        int end = text.indexOf("-----END " + KEY);
        if (begin < 0 || end < begin) {
            throw new IOException(file + " has no key in PKCS #8; convert it"
                    + " with openssl pkcs8 -topk8 -nodes");
        }
        byte[] data = Base64.getMimeDecoder().decode(text.substring(
                begin + "-----BEGIN ".length() + KEY.length(), end));
        return KeyFactory.getInstance(algorithm)
                .generatePrivate(new PKCS8EncodedKeySpec(data));
    }
}
