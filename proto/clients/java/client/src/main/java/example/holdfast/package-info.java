/**
 * Locks from a Holdfast broker. {@link example.holdfast.Holdfast} is the
 * client, {@link example.holdfast.Hold} a lock that it holds.
 *
 * <pre>{@code
 * try (Holdfast hf = Holdfast.connect(
 *         Options.at("broker-1:4653", "broker-2:4653").keep(ofSeconds(30)));
 *         Hold hold = hf.lock("stock/4711", Ask.within(ofSeconds(5)))) {
 *     write(hold.fence());
 *     hold.check();
 * }
 * }</pre>
 */
package example.holdfast;
