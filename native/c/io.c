/* Forwards from port to port without a network function. */
#include "forward.h"

static __rte_always_inline uint16_t io(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	return n;
}

NETWORK_FUNCTION(io, io)
NETWORK_FUNCTION_ON(io_flow, io, FRESH_FLOW)
