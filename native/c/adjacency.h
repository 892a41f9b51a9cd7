/* What the routers of both IP versions share. */
#include "forward.h"

enum { NOT_PLAIN, NO_ROUTE, TOO_BIG };

/* What a packet needs on its way out: destination MAC and two bytes of the source; then four bytes of the source, the
 * output, whether it is resolved, the MTU. */
struct adjacency {
	uint64_t front, rest;
} __rte_aligned(16);
