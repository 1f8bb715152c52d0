package example.holdfast;

/**
 * What {@link Holdfast#awaitFree} tells of the last grant.
 *
 * @param fence the fence of the grant; 0 if it is not known
 * @param note its note, or ""
 */
public record Freed(long fence, String note) {
}
