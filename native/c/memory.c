/* Packets that go round in memory. */
#include "forward.h"

uint16_t memory_receive(struct port *port, struct rte_mbuf **p, uint16_t n)
{
	rte_memcpy(p, port->slots + (port->head & port->mask), BURST * sizeof(*p));
	port->head += BURST;
	return BURST;
}

uint16_t memory_transmit(struct port *port, struct rte_mbuf **p, uint16_t n)
{
	struct rte_mbuf **to = port->slots + (port->tail & port->mask);
	if (likely(n == BURST))
		rte_memcpy(to, p, BURST * sizeof(*p));
	else
		rte_memcpy(to, p, n * sizeof(*p));
	port->tail += n;
	return n;
}

uint16_t (*volatile memory_rx_burst)(struct port *, struct rte_mbuf **, uint16_t) = memory_receive;
uint16_t (*volatile memory_tx_burst)(struct port *, struct rte_mbuf **, uint16_t) = memory_transmit;
