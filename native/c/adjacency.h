/* Adjacencies of the routers of both IP versions. */
#include "forward.h"

enum { NOT_PLAIN, NO_ROUTE, TOO_BIG };

/* Adjacency. First word: destination MAC address and two bytes of the source; second word: four bytes of the source, the output,
 * whether it is resolved, the MTU. */
struct adjacency {
	uint64_t first, second;
} __rte_aligned(16);
