package example.holdfast;

/**
 * What the core has of the options. Times are in seconds.
 *
 * @param progress whether a wait tells its place
 * @param several whether there are several addresses to move between
 */
record Settings(String name, String user, String secret, double keep,
        double heartbeat, boolean progress, boolean several) {
}
