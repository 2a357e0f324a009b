// Package checksum holds the sums that guard every byte segtier stores, moves
// or serves, and the arithmetic that lets one pass over a file produce all of
// them.
//
//	sum      guards                                       computed           verified
//	CRC32C   record batches (Kafka's own)                 by the producer    transfer.Scan, transfer.Confirm
//	CRC32C   chunks (1 MiB of log bytes)                  transfer.Scan      endpoint, on every fill
//	CRC32C   parts of an upload (16 MiB of the object)    transfer.Scan      the store, on every part
//	CRC32C   the whole object, its tail, its sections     transfer.Scan      transfer.Confirm, fetch
//	XXH64    keys and names inside the process            cache              never stored
//
// CRC32C is linear over GF(2): the sum of A‖B follows from the sums of A and B
// and the length of B ([Combine]). So a stream is summed once, in the finest
// pieces that any border asks for, and the sums of chunks, parts and the whole
// are put together from those ([Cutter]).
//
// CRC32C here is the Castagnoli polynomial, reflected (0x82F63B78), initial
// value and final XOR all ones, as in RFC 3720, Kafka's record batches and S3's
// x-amz-checksum-crc32c.
package checksum
