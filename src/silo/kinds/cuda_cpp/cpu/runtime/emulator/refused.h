// Names of CUDA that are not supported on the CPU: using one is a compile error with its line.
#pragma once

#include "threads.h"

#define SILO_REFUSED(name, what)                                                                   \
    template <class... A>                                                                          \
    void name(A &&...) __attribute__((unavailable(what " does not run on the CPU")));              \
    template <class T, class... A>                                                                 \
    T name(A &&...) __attribute__((unavailable(what " does not run on the CPU")));
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
SILO_REFUSED(tex1D, "a texture (tex1D)")
SILO_REFUSED(tex1Dfetch, "a texture (tex1Dfetch)")
SILO_REFUSED(tex1DLod, "a texture (tex1DLod)")
SILO_REFUSED(tex2D, "a texture (tex2D)")
SILO_REFUSED(tex2DLod, "a texture (tex2DLod)")
SILO_REFUSED(tex2Dgather, "a texture (tex2Dgather)")
SILO_REFUSED(tex3D, "a texture (tex3D)")
SILO_REFUSED(texCubemap, "a texture (texCubemap)")
SILO_REFUSED(surf1Dread, "a surface (surf1Dread)")
SILO_REFUSED(surf1Dwrite, "a surface (surf1Dwrite)")
SILO_REFUSED(surf2Dread, "a surface (surf2Dread)")
SILO_REFUSED(surf2Dwrite, "a surface (surf2Dwrite)")
SILO_REFUSED(surf3Dread, "a surface (surf3Dread)")
SILO_REFUSED(surf3Dwrite, "a surface (surf3Dwrite)")
SILO_REFUSED(__pipeline_memcpy_async, "an asynchronous copy (__pipeline_memcpy_async)")
SILO_REFUSED(__pipeline_commit, "an asynchronous copy (__pipeline_commit)")
SILO_REFUSED(__pipeline_wait_prior, "an asynchronous copy (__pipeline_wait_prior)")
