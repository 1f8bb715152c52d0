package example.holdfast.spring;

import example.holdfast.Options;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code holdfast.*}.
 *
 * @param enabled Whether there is a client.
 * @param addresses Addresses of the brokers, such as broker-1:4653.
 * @param name Name of the client, for people. The default is
 *     spring.application.name.
 * @param user User at the broker.
 * @param secret Secret of the user.
 * @param keep Time for which locks outlive a lost connection.
 * @param heartbeat Pace of signs of life; 0 turns them off.
 * @param timeout Longest wait for the first connection.
 * @param tls TLS settings.
 */
@ConfigurationProperties("holdfast")
public record HoldfastProperties(@DefaultValue("true") boolean enabled,
        @DefaultValue("127.0.0.1:4653") List<String> addresses, String name,
        String user, String secret, @DefaultValue("0s") Duration keep,
        @DefaultValue("2s") Duration heartbeat,
        @DefaultValue("15s") Duration timeout, @DefaultValue Tls tls) {
    /**
     * The properties {@code holdfast.tls.*}.
     *
     * @param enabled Whether connections use TLS.
     * @param ca PEM file of trusted certificates. The default is the trust
     *     store of Java.
     * @param cert PEM file of the certificate of the client.
     * @param key PEM file of the key of that certificate.
     * @param serverName Name in the certificate of the broker. The default is
     *     the host of its address.
     */
    public record Tls(@DefaultValue("false") boolean enabled, Path ca,
            Path cert, Path key, String serverName) {
        Options apply(Options plain) {
            Options options = plain.tls();
            options = ca == null ? options : options.ca(ca);
            options = cert == null ? options : options.cert(cert, key);
            return serverName == null ? options
                    : options.serverName(serverName);
        }
    }

    Options options(String application) {
        Options options = Options.at(addresses.toArray(String[]::new))
                .keep(keep).heartbeat(heartbeat).timeout(timeout);
        String word = name == null ? application : name;
        options = word == null ? options : options.name(word);
        options = user == null ? options : options.user(user, secret);
        return tls.enabled ? tls.apply(options) : options;
    }
}
