/* kernels/special_lanes.h -- special.h's functions of one number for the CPU, as plain C
** without branches that compilers turn into vectors: each way is taken, one is kept.
**
** The polynomials are Chebyshev's interpolations, computed with 40 digits; what they
** leave out is below 1e-17 of the value. */
#ifndef MT_SPECIAL_LANES_H
#define MT_SPECIAL_LANES_H

#ifdef __FMA__
#define MT_MULADD_F64(a, b, c) __builtin_fma(a, b, c)
#else
#define MT_MULADD_F64(a, b, c) ((a) * (b) + (c))
#endif

/* c[0] + c[1] x + ... */
#define MT_POLYNOMIAL(x, c) mt_polynomial(x, (int)(sizeof(c) / sizeof *(c)), c)
MT_WORD_FN double mt_polynomial(double x, int n, const double *c) {
  double y = c[n - 1];
#pragma GCC unroll 32
  for (int k = n - 2; k >= 0; k--) y = MT_MULADD_F64(y, x, c[k]);
  return y;
}

/* ---- Bessel functions: I(x) in x^2 below 11, I(x) exp(-x) sqrt(x) in 22 / x - 1 above */
/* clang-format off */
static const double mt_i0_near[] = {
    1.0, 0.24999999999999992, 0.015625000000000083, 0.0004340277777777456,
    6.781684027784442e-06, 6.781684027693584e-08, 4.709502797773906e-10,
    2.4028075453734513e-12, 9.385967167888106e-15, 2.8969028254988816e-17,
    7.242272190563138e-20, 1.4963089963975174e-22, 2.5981642236185124e-25,
    3.838965099705881e-28, 4.934172199599399e-31, 5.247227178510064e-34,
    6.189569313566636e-37, 2.0602554717977456e-40, 7.809141630346398e-43};
static const double mt_i1_near[] = {
    0.5, 0.0625, 0.0026041666666666687, 5.425347222222145e-05, 6.781684027779388e-07,
    5.651403356461127e-09, 3.363930569504926e-11, 1.501754717448896e-13,
    5.214426148688396e-16, 1.4484515589560402e-18, 3.291938990960382e-21,
    6.234665158551392e-24, 9.992424578362768e-27, 1.371511111731664e-29,
    1.6417715674755368e-32, 1.653641717693155e-35, 1.7760470885654844e-38,
    6.588060618470448e-42, 1.9776256385453635e-44};
static const double mt_i0_far[] = {
    0.4012699087930323, 0.0023917279164540647, 6.754764640805318e-05,
    3.7373167738897263e-06, 3.2344346502723403e-07, 3.9686360581252125e-08,
    6.5655867982920975e-09, 1.4310098448558723e-09, 4.0967497117217263e-10,
    1.542135784289855e-10, 8.222773560628966e-11, 5.90228693756402e-11,
    1.9345733615302827e-11, -2.992282201807033e-11, -3.024098180642856e-11,
    2.692380136156242e-12, 1.0397458705749788e-11, 4.006830743537157e-13,
    -1.4593723604902498e-12};
static const double mt_i1_far[] = {
    0.39204142323335184, -0.007005970696294295, -0.0001098509096750604,
    -5.101567276619578e-06, -4.051160934305426e-07, -4.7204209907334064e-08,
    -7.54160209372003e-09, -1.6021120317380433e-09, -4.494851103509524e-10,
    -1.6642627266052707e-10, -8.739993437987237e-11, -6.236627992355833e-11,
    -2.111544796900536e-11, 3.0515683356335705e-11, 3.162806654871289e-11,
    -2.3959852586822293e-12, -1.0716516744912379e-11, -4.857452789865216e-13,
    1.4889028601488937e-12};
/* clang-format on */

/* Of |x|, and the same times exp(-|x|). Far beyond the largest result nothing changes,
** and an infinity stays one. */
#define MT_WORD_BESSEL(order, odd)                                                    \
  MT_WORD_FN double mt_i##order##_f64(double x) {                                     \
    const double a = fabs(x), b = a > 1000 ? 1000 : a;                                \
    const double e = exp(b / 2), root = 1 / sqrt(b);                                  \
    const double near = MT_POLYNOMIAL(a * a, mt_i##order##_near) * (odd ? a : 1);     \
    const double far =                                                                \
        MT_POLYNOMIAL(22 * root * root - 1, mt_i##order##_far) * e * root * e;        \
    const double y = a < 11 ? near : far;                                             \
    return odd ? copysign(y, x) : y;                                                  \
  }                                                                                   \
  MT_WORD_FN double mt_i##order##e_f64(double x) {                                    \
    const double a = fabs(x), e = exp(-a), root = 1 / sqrt(a);                        \
    const double near = MT_POLYNOMIAL(a * a, mt_i##order##_near) * (odd ? a : 1) * e; \
    const double far = MT_POLYNOMIAL(22 * root * root - 1, mt_i##order##_far) * root; \
    const double y = a < 11 ? near : far;                                             \
    return odd ? copysign(y, x) : y;                                                  \
  }
MT_WORD_BESSEL(0, 0)
MT_WORD_BESSEL(1, 1)

/* Of float32: shorter, split at 8; no division and no root of float64, which would take as
** long as all the rest. */
/* clang-format off */
static const double mt_i0_near_f32[] = {
    1.000000000006, 0.24999999996852, 0.015625000027445, 0.00043402776838356,
    6.7816856967977e-06, 6.7816664041592e-08, 4.7096220322516e-10, 2.4022683370615e-12,
    9.4025969389577e-15, 2.8618877805458e-17, 7.7353320678132e-20, 1.0566769881479e-22,
    4.7753468548504e-25};
static const double mt_i1_near_f32[] = {
    0.49999999999029, 0.062500000043516, 0.0026041666343945, 5.4253481586939e-05,
    6.781670005632e-07, 5.651527033683e-09, 3.363240613416e-11, 1.5042800181707e-13,
    5.1530925255435e-16, 1.5459448002362e-18, 2.3270968721868e-21, 1.1466797361335e-23};
static const double mt_i0_far_f32[] = {
    0.4021765094311, 0.0033605519582286, 0.00013621678379052, 1.1143595558447e-05,
    1.4780179978785e-06, 2.9372465233079e-07, 1.0563580316306e-07, 4.9763374485708e-08,
    1.5218108298043e-09, -8.0637863115859e-09};
static const double mt_i1_far_f32[] = {
    0.38939845904068, -0.0097495771648224, -0.00021923651818324, -1.5039171153821e-05,
    -1.8287267250696e-06, -3.4437864124709e-07, -1.1787458307124e-07,
    -5.4509354796227e-08, -2.4287946398087e-09, 8.3266651725196e-09};
static const double mt_exp_terms[] = {
    1.0, 0.99999999997978, 0.49999999999439, 0.16666666891074, 0.041666667040586,
    0.0083332660931896, 0.0013888801745124, 0.0001991586919139, 2.488446163856e-05};
/* clang-format on */

/* exp within 1e-11, |x| <= 700. */
MT_WORD_FN double mt_exp_short(double x) {
  const double rounder = 0x1.8p52 + 1023,
               t = MT_MULADD_F64(x, 1.4426950408889634, rounder);
  const double r = MT_MULADD_F64(t - rounder, -0.6931471805599453, x);
  int64_t bits;
  double power;
  memcpy(&bits, &t, sizeof bits);
  bits = (int64_t)((uint64_t)bits << 52);
  memcpy(&power, &bits, sizeof power);
  return MT_POLYNOMIAL(r, mt_exp_terms) * power;
}

/* 1 / sqrt(x) of a positive float by a step of Newton's method. */
MT_WORD_FN double mt_rsqrt_short(float x) {
  const double y = (double)(1 / sqrtf(x));
  return y * (1.5 - 0.5 * (double)x * y * y);
}

#define MT_WORD_BESSEL_F32(order, odd)                                                \
  MT_WORD_FN float mt_i##order##_f32(float x) {                                       \
    const float size = fabsf(x) > 1000 ? 1000 : fabsf(x);                             \
    const double a = (double)size, e = mt_exp_short(a / 2),                           \
                 root = mt_rsqrt_short(size);                                         \
    const double near = MT_POLYNOMIAL(a * a, mt_i##order##_near_f32) * (odd ? a : 1); \
    const double far = MT_POLYNOMIAL(16 * root * root - 1, mt_i##order##_far_f32);    \
    const float y = (float)(a < 8 ? near : far * e * root * e);                       \
    return odd ? copysignf(y, x) : y;                                                 \
  }                                                                                   \
  MT_WORD_FN float mt_i##order##e_f32(float x) {                                      \
    const double a = (double)fabsf(x), b = a > 8 ? 8 : a, e = mt_exp_short(-b);       \
    const double root = mt_rsqrt_short(fabsf(x));                                     \
    const double near = MT_POLYNOMIAL(a * a, mt_i##order##_near_f32) * (odd ? a : 1); \
    const double far = MT_POLYNOMIAL(16 * root * root - 1, mt_i##order##_far_f32);    \
    const double y = a < 8 ? near * e : a > 0x1p200 ? 0 : far * root;                 \
    return odd ? copysignf((float)y, x) : (float)y;                                   \
  }
MT_WORD_BESSEL_F32(0, 0)
MT_WORD_BESSEL_F32(1, 1)

/* ---- erfinv(x) / x, a smooth function of w = -log(1 - x^2): in w / 3.125 - 1 where w is
** at most 6.25, in the place of sqrt(w) within 2.5 .. 4 or 4 .. 6.1 above */
/* clang-format off */
static const double mt_erfinv_first[] = {
    1.6536545626831027, 0.7504943200799635, -0.058922567103787134,
    -0.022604447453450232, 0.01780836181873851, -0.004137314377403391,
    -0.0012716922767024804, 0.001232485568550093, -0.0002643935887486061,
    -0.00011688883906368398, 9.336693850145469e-05, -1.5027713926607672e-05,
    -1.12556848303199e-05, 7.1300663740767115e-06, -6.87597660449069e-07,
    -1.059336931327948e-06, 5.455731449441755e-07, -1.0167881522843899e-08,
    -1.0509863560329017e-07, 3.914267100133108e-08, 9.050516362783658e-09,
    -8.557984074479201e-09, -8.186442916595773e-11, 7.680990475576525e-10};
static const double mt_erfinv_second[] = {
    3.0838856104922208, 0.753944225770624, 0.0030211394363748004, -0.00158254108940711,
    0.0007883078513035505, -0.00040063569835709886, 0.00016966502201594177,
    -4.739182728807125e-05, 2.4058645410848233e-06, 5.127316664497411e-06,
    -2.664792853936729e-06, 5.264624728714587e-07, 9.28911222561948e-08,
    -9.468994570246937e-08, 2.640222955342202e-08, -3.6862448212666726e-10,
    -2.4632549100503405e-09, 9.889115389827979e-10, -1.1662393838626046e-10,
    -6.466960514925277e-11, 2.4097707183427266e-11, 0, 0, 0};
static const double mt_erfinv_third[] = {
    4.90042105144364, 1.0607992684776597, -0.00018726854587222013,
    -0.00023188618667805715, 8.659304866767489e-05, -2.345108266487681e-05,
    5.6201649314465295e-06, -1.276353362480803e-06, 2.9788420271490196e-07,
    -8.525116526386363e-08, 3.554250780842224e-08, -1.9082961589887076e-08,
    1.0431569308888455e-08, -5.093015056951128e-09, 2.070662648510945e-09,
    -6.838446100317265e-10, 1.7171209505455912e-10, 6.095706841892513e-12,
    -3.7742013942027056e-11, 1.2662789994568851e-11, 0, 0, 0, 0};
/* clang-format on */

MT_WORD_FN double mt_erfinv_f64(double x) {
  const double a = fabs(x), w = -log((1 - a) * (1 + a)), s = sqrt(w);
  const int first = w <= 6.25, second = s <= 4;
  const double t = first    ? w / 3.125 - 1
                   : second ? (s - 3.25) / 0.75
                            : (s - 5.05) / 1.05;
  double y = 0;
#pragma GCC unroll 32
  for (int k = 23; k >= 0; k--) {
    const double above = second ? mt_erfinv_second[k] : mt_erfinv_third[k];
    y = MT_MULADD_F64(y, t, first ? mt_erfinv_first[k] : above);
  }
  return a == 1 ? x * (double)INFINITY : y * x;
}

/* ---- the gamma function and its kin ------------------------------------------------- */
/* of 2 .. 3, in -1 .. 1 */
/* clang-format off */
static const double mt_gamma_middle[] = {
    1.329340388179137, 0.46736726081304275, 0.16363964449533402, 0.03173390585514297,
    0.0068545771251391704, 0.0008862743935868059, 0.00016238130348726054,
    1.255781630366426e-05, 2.9471647834193526e-06, 7.698732891029532e-09,
    5.989192873342573e-08, -6.250638232435246e-09, 1.7720185652489462e-09,
    -3.1278750685409537e-10, 6.502901167613035e-11, -1.2749100061530237e-11,
    3.142782121001347e-12, -6.342546582674352e-13};
/* sin(pi r) / r and cos(pi r), |r| <= 1/2, in r^2 */
static const double mt_sinpi_terms[] = {
    3.141592653589793, -5.167712780049969, 2.5501640398773007, -0.599264529318946,
    0.08214588657312355, -0.007370430506093225, 0.00046629981702308817,
    -2.1903499125519212e-05, 7.697847275590284e-07};
static const double mt_cospi_terms[] = {
    1.0, -4.934802200544677, 4.058712126416498, -1.335262768843456, 0.23533063012967062,
    -0.02580688873817758, 0.001929556278037417, -0.00010456656706174584,
    4.149578027057121e-06};
/* clang-format on */

/* lgamma but for its last digits near its zeros: within 3 units of the last place of 1, and
** below -7 of 4, where the result is smaller. Below 8 the gamma function of 2 .. 3 times or
** through the numbers between, above it Stirling's series; reflection below 0. */
MT_WORD_FN double mt_lgamma_of(double x, int above) {
  const double z = above || x > 0 ? x : 1 - x, r = x - rint(x), part = z - floor(z);
  const double sine = fabs(r * MT_POLYNOMIAL(r * r, mt_sinpi_terms));
  double gamma = MT_POLYNOMIAL(2 * part - 1, mt_gamma_middle);
#pragma GCC unroll 8
  for (int k = 1; k < 6; k++) gamma *= z - k >= 2 ? z - k : 1;
  const double through = z < 1 ? z * (z + 1) : z < 2 ? z : 1;
  const double top = above || x > 0 ? gamma : 3.14159265358979323846 * through;
  const double bottom = above || x > 0 ? through : sine * gamma;
  const double v = (z < 8 ? top : 1) / (z < 8 ? bottom : z), u = v * v;
  const double l = log(z < 8 ? v : z), other = 1.1447298858494001741 - log(sine);
  double series = 1.0 / 156;
  series = 691.0 / 360360 - u * series;
  series = 1.0 / 1188 - u * series;
  series = 1.0 / 1680 - u * series;
  series = 1.0 / 1260 - u * series;
  series = 1.0 / 360 - u * series;
  series = v * (1.0 / 12 - u * series);
  const double far = (z - 0.5) * (l - 1) + (series + 0.41893853320467274178);
  const double y = z < 8 ? l : above || x > 0 ? far : other - far;
  return !above && (x <= 0) & !(r * r > 0) ? (double)INFINITY : y;
}
MT_WORD_FN double mt_lgamma_above(double x) { return mt_lgamma_of(x, 1); }
MT_WORD_FN double mt_lgamma_lanes(double x) { return mt_lgamma_of(x, 0); }
MT_WORD_FN float mt_lgamma_f32(float x) { return (float)mt_lgamma_lanes((double)x); }

/* Below 10, where recurrence leads to x + 10, the sum of 1 / (x + k), k < 10: pairs of
** terms have s = x (x + 9) and a constant as denominators. Then the asymptotic series
** (Abramowitz and Stegun 6.3.18); reflection below 0, where cot has a period of 1. */
static const double mt_rising[] = {40320, 12176, 1308, 60, 1};
static const double mt_digamma_sum[] = {40320, 24352, 3924, 240, 5};
MT_WORD_FN double mt_digamma_f64(double x) {
  const double r = x - rint(x), r2 = r * r;
  const double sine = r * MT_POLYNOMIAL(r2, mt_sinpi_terms);
  const double cot = MT_POLYNOMIAL(r2, mt_cospi_terms) / sine;
  const double a = x < 0 ? 1 - x : x, s = a * (a + 9), z = a < 10 ? a + 10 : a;
  const double top = MT_POLYNOMIAL(s, mt_digamma_sum);
  const double bottom = MT_POLYNOMIAL(s, mt_rising) * s;
  const double sum = a < 10 ? (2 * a + 9) * top / bottom : 0;
  const double v = 1 / z, u = v * v;
  double series = 691.0 / 32760 - u / 12;
  series = 1.0 / 132 - u * series;
  series = 1.0 / 240 - u * series;
  series = 1.0 / 252 - u * series;
  series = 1.0 / 120 - u * series;
  const double y = log(z) - 0.5 * v - u * (1.0 / 12 - u * series) - sum;
  const double mirrored = r == 0 ? (double)NAN : y - 3.14159265358979323846 * cot;
  return x == 0 ? copysign((double)INFINITY, -x) : x < 0 ? mirrored : y;
}

/* Its derivative, by that of each step: in s the sum of 1 / (x + k)^2, too, has whole
** numbers as coefficients. */
static const double mt_trigamma_sum[] = {
    131681894400, 82783088640, 24999178752, 4547382016, 534089520,
    41415072,     2107120,     67680,       1245,       10};
MT_WORD_FN double mt_trigamma_f64(double x) {
  const double r = x - rint(x), sine = r * MT_POLYNOMIAL(r * r, mt_sinpi_terms);
  const double mirror = 9.86960440108935861883 / (sine * sine);
  const double a = x > 0 ? x : 1 - x, z = a < 10 ? a + 10 : a;
  const double square = a * (a + 9);
  const double product = MT_POLYNOMIAL(square, mt_rising) * square;
  const double sum = MT_POLYNOMIAL(square, mt_trigamma_sum) / (product * product);
  const double v = 1 / z, u = v * v;
  double series = 43867.0 / 798;
  series = 3617.0 / 510 - u * series;
  series = 7.0 / 6 - u * series;
  series = 691.0 / 2730 - u * series;
  series = 5.0 / 66 - u * series;
  series = 1.0 / 30 - u * series;
  series = 1.0 / 42 - u * series;
  series = 1.0 / 30 - u * series;
  series = v + 0.5 * u + v * u * (1.0 / 6 - u * series);
  const double y = series + (a < 10 ? sum : 0);
  return x > 0 ? y : mirror - y;
}

#endif
