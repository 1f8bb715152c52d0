/*
 * The hash slot of a key, as Redis Cluster computes it (CRC-16/XMODEM of the
 * part between the first '{' and the next '}', if there is any).
 */
#ifndef HOLDFAST_BASE_SLOT_H
#define HOLDFAST_BASE_SLOT_H

#include "daemon/base/text.h"

#define SLOT_COUNT 16384

/* 0 to SLOT_COUNT - 1. */
uint16_t slot_of_key(struct text key);

/* A number whose digits have that slot, always the same one. The first search
 * takes some ten thousand hashes. */
uint32_t slot_tag(uint16_t slot);

#endif
