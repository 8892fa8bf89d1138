// kernels/cuda/sort_pairs.cu -- the radix sorts that other files call.
#include <cub/device/device_radix_sort.cuh>
#include "kernels/cuda/sort_pairs.cuh"

template <class K> size_t sort_pairs_bytes(uint32_t n) {
  size_t bytes = 0;
  cub::DoubleBuffer<K> key;
  cub::DoubleBuffer<uint32_t> value;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, key, value, n);
  return round256(bytes);
}

template <class K>
mt_status sort_pairs(const mt_call *call, pair_buffers<K> *b, uint32_t n, int bits,
                     void *room) {
  cub::DoubleBuffer<K> key(b->key[b->at], b->key[1 - b->at]);
  cub::DoubleBuffer<uint32_t> value(b->value[b->at], b->value[1 - b->at]);
  size_t bytes = sort_pairs_bytes<K>(n);
  CUDA_TRY(cub::DeviceRadixSort::SortPairs(room, bytes, key, value, n, 0, bits,
                                           stream_of(call)));
  // both buffers are chosen alike
  b->at = key.Current() == b->key[b->at] ? b->at : 1 - b->at;
  return MT_OK;
}

template <class K> size_t sort_keys_bytes(uint32_t n) {
  size_t bytes = 0;
  cub::DoubleBuffer<K> key;
  cub::DeviceRadixSort::SortKeys(nullptr, bytes, key, n);
  return round256(bytes);
}

template <class K>
mt_status sort_keys(const mt_call *call, K *const (&key)[2], int *at, uint32_t n,
                    int bits, void *room) {
  cub::DoubleBuffer<K> buffer(key[0], key[1]);
  size_t bytes = sort_keys_bytes<K>(n);
  CUDA_TRY(
      cub::DeviceRadixSort::SortKeys(room, bytes, buffer, n, 0, bits, stream_of(call)));
  *at = buffer.Current() == key[0] ? 0 : 1;
  return MT_OK;
}

template size_t sort_pairs_bytes<uint32_t>(uint32_t);
template size_t sort_pairs_bytes<uint64_t>(uint32_t);
template mt_status sort_pairs<uint32_t>(const mt_call *, pair_buffers<uint32_t> *,
                                        uint32_t, int, void *);
template mt_status sort_pairs<uint64_t>(const mt_call *, pair_buffers<uint64_t> *,
                                        uint32_t, int, void *);
template size_t sort_keys_bytes<uint32_t>(uint32_t);
template size_t sort_keys_bytes<uint64_t>(uint32_t);
template mt_status sort_keys<uint32_t>(const mt_call *, uint32_t *const (&)[2], int *,
                                       uint32_t, int, void *);
template mt_status sort_keys<uint64_t>(const mt_call *, uint64_t *const (&)[2], int *,
                                       uint32_t, int, void *);
